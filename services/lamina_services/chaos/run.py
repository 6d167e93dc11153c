"""One seed: the story told calmly, and under faults; what is remembered of the two, compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamina_services.chaos.plan import Outcome, Plan
from lamina_services.chaos.story import Story, told
from lamina_services.chaos.telling import Progress, Say, calmly, under_faults
from lamina_services.chaos.verdict import Verdict, judged


@dataclass(frozen=True)
class Report:
    """What one seed showed."""

    plan: Plan
    story: Story
    calm: Outcome
    chaos: Outcome
    calm_verdict: Verdict
    """The calm telling against what was told: it has to be clean for the comparison to mean anything."""
    verdict: Verdict

    @property
    def clean(self) -> bool:
        """Whether nothing is lost, doubled, different or wrongly parked."""
        return self.verdict.clean and self.calm_verdict.clean

    def as_json(self) -> dict[str, Any]:
        """For machines: counts, and zeros where all is well."""
        memory = self.chaos.memory
        return {
            "seed": self.plan.seed,
            "turns": len(self.story.turns),
            "sessions": self.plan.sessions,
            "faults": dict(sorted(self.chaos.faults.items())),
            "said_again": self.chaos.tries,
            "replayed": self.chaos.replays,
            "lost": len(self.verdict.lost),
            "duplicated": len(self.verdict.duplicated),
            "differing": len(self.verdict.differing),
            "poison_parked": len(self.story.poison & self.chaos.parked.keys()),
            "poison_expected": len(self.story.poison),
            "wrongly_parked": len(self.chaos.parked.keys() - self.story.poison),
            "calm_findings": sum(map(len, self.calm_verdict.by_kind().values())),
            "compared": {
                "turns": len(memory.turns),
                "covered turns": len(memory.covered),
                **{kind: len(rows) for kind, rows in memory.kinds.items()},
            },
            "calm_s": round(self.calm.took_s),
            "chaos_s": round(self.chaos.took_s),
            "clean": self.clean,
        }


async def run(plan: Plan, folder: Path, *, say: Say, progress: Progress) -> Report:
    """Both tellings, on stacks of their own under `folder`."""
    story = told(plan.seed, plan.turns, plan.sessions)
    calm = await calmly(plan, story, folder / "calm", progress)
    say(f"the calm telling took {calm.took_s:.0f} s")
    chaos = await under_faults(plan, story, folder / "chaos", say, progress)
    say(f"the telling under faults took {chaos.took_s:.0f} s")
    return Report(
        plan=plan,
        story=story,
        calm=calm,
        chaos=chaos,
        calm_verdict=judged(story, calm.memory, calm.parked),
        verdict=judged(story, chaos.memory, chaos.parked, calm.memory),
    )
