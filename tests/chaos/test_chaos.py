"""The proof that nothing is lost, on a small story: `make chaos` tells a long one, to the real embedder."""

from pathlib import Path

from lamina_services.chaos.plan import Plan
from lamina_services.chaos.run import run

SMALL = Plan(
    seed=11, turns=100, sessions=14, faults=12, every_s=1.2, failing=0.1, deadly=0.01, vectors="hashes"
)


async def test_what_faults_leave_is_what_a_calm_telling_leaves(tmp_path: Path) -> None:
    report = await run(SMALL, tmp_path, say=lambda _: None, progress=lambda _, __: None)
    assert report.calm_verdict.by_kind() == {"lost": [], "duplicated": [], "differing": [], "poison": []}
    assert report.verdict.by_kind() == {"lost": [], "duplicated": [], "differing": [], "poison": []}
    told = report.as_json()
    assert told["poison_parked"] == told["poison_expected"] == 20
    assert told["replayed"], "some became dead letters by bad luck alone"
    kills = {name for name in report.chaos.faults if name.startswith("kill ")}
    assert len(kills) >= 9, "every part has been killed"
    assert {"empty valkey", "told twice", "model fails: extract"} <= report.chaos.faults.keys()
