"""The token estimate against reference counts of a byte-pair tokenizer with 200,000 entries."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.models.tokens import EstimatedTokens

count = EstimatedTokens().count

ENGLISH = """\
Before we start on the checkout page, a few things you should know about how I like to work. Please
keep the answers short, and show me the change before you make it. I prefer dark mode in every tool,
and I never want migrations to run against production without a backup. We settled on PostgreSQL
last month because the team already knows it well, and the nightly job that exports invoices depends
on one of its features. If a test is slow, say so and we will look at it together; do not skip it.
My colleague Renata looks after the queue, so ask her before you touch its settings."""

SPANISH = """\
Antes de empezar con la página de pago, quiero contarte cómo me gusta trabajar. Prefiero respuestas
cortas y que me enseñes el cambio antes de aplicarlo. Uso el modo oscuro en todas las herramientas y
no quiero que nunca se ejecuten migraciones en producción sin una copia de seguridad. El mes pasado
elegimos PostgreSQL porque el equipo ya lo conoce bien, y el proceso nocturno que exporta las
facturas depende de una de sus funciones. Si una prueba es lenta, dilo y la miraremos juntos; no la
omitas. Mi compañera Renata se encarga de la cola, así que pregúntale antes de tocar la
configuración."""

PORTUGUESE = """\
Antes de começar com a página de pagamento, quero contar como gosto de trabalhar. Prefiro respostas
curtas e que você me mostre a mudança antes de aplicá-la. Uso o modo escuro em todas as ferramentas
e não quero que migrações sejam executadas em produção sem uma cópia de segurança. No mês passado
escolhemos o PostgreSQL porque a equipe já o conhece bem, e o processo noturno que exporta as
faturas depende de uma das suas funções. Se um teste for lento, avise e vamos olhar juntos; não o
pule. Minha colega Renata cuida da fila, então pergunte a ela antes de mexer na configuração."""

CHINESE = """\
在开始做结账页面之前，我想先说明一下我的工作习惯。请把回答写得简短一些，修改之前先给我看。我在所有工
具里都用深色模式，没有备份的时候绝对不要在生产环境里执行迁移。上个月我们选择了 PostgreSQL，因为团队
对它很熟悉，而且每天晚上导出发票的任务依赖它的一个功能。如果某个测试很慢，请告诉我，我们一起来看，不
要直接跳过。队列由我的同事负责，修改设置之前请先问她。"""

JAPANESE = """\
決済ページの作業を始める前に、私の仕事の進め方を伝えておきます。回答は短くして、変更する前に必ず見せ
てください。どのツールでもダークモードを使っています。バックアップなしで本番環境のマイグレーションを
実行することは絶対にしないでください。先月、チームがよく知っているという理由で PostgreSQL を選びまし
た。毎晩の請求書の書き出しはその機能に依存しています。テストが遅いときは知らせてください。一緒に確認
しましょう。"""

KOREAN = """\
결제 페이지 작업을 시작하기 전에 제가 일하는 방식을 먼저 알려 드릴게요. 답변은 짧게 해 주시고,
변경하기 전에 먼저 보여 주세요. 모든 도구에서 다크 모드를 사용합니다. 백업이 없으면 운영 환경에서
마이그레이션을 절대 실행하지 마세요. 지난달에 팀이 잘 알고 있다는 이유로 PostgreSQL을 선택했고, 매일
밤 청구서를 내보내는 작업이 그 기능에 의존합니다. 테스트가 느리면 말해 주세요."""

PYTHON = '''\
@dataclass(frozen=True)
class Invoice:
    """What a customer owes for one month."""

    number: str
    lines: tuple[Line, ...] = ()

    @property
    def total(self) -> Decimal:
        return sum((line.price * line.quantity for line in self.lines), Decimal(0))


async def export_invoices(pool: ConnectionPool, month: date, folder: Path) -> int:
    written = 0
    async with pool.connection() as connection:
        rows = await connection.execute("SELECT number, body FROM invoices WHERE month = %s", (month,))
        async for number, body in rows:
            target = folder / f"{number}.json"
            if not target.exists():
                target.write_text(json.dumps(body, indent=2, sort_keys=True))
                written += 1
    logger.info("exported %d invoices to %s", written, folder)
    return written
'''

GO = """\
func (s *Server) handleOrder(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()

	var order Order
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, "malformed order: "+err.Error(), http.StatusBadRequest)
		return
	}
	if order.Quantity <= 0 || order.Quantity > maxQuantity {
		http.Error(w, fmt.Sprintf("quantity must be in 1..%d", maxQuantity), http.StatusUnprocessableEntity)
		return
	}
	id, err := s.store.Insert(ctx, &order)
	if err != nil {
		s.log.Error("insert failed", "customer", order.CustomerID, "err", err)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Location", "/v1/orders/"+id.String())
	w.WriteHeader(http.StatusCreated)
}
"""

JSON_LOG = "\n".join(
    json.dumps(
        {
            "time": f"2026-03-0{n}T08:1{n}:4{n}.{n}71Z",
            "severity": "ERROR" if n % 3 == 0 else "INFO",
            "service": "orders-api",
            "trace": f"4bf92f3577b34da6a3ce929d0e0e4{n}3{n}",
            "http": {
                "method": "POST",
                "path": f"/v1/orders/{n * 1371}",
                "status": 200 + n,
                "latency_ms": n * 37,
            },
            "message": "upstream answered late, retrying" if n % 3 == 0 else "order accepted",
        }
    )
    for n in range(1, 9)
)

DIFF = """\
diff --git a/orders/limits.py b/orders/limits.py
index 3f1c2aa..9be04d1 100644
--- a/orders/limits.py
+++ b/orders/limits.py
@@ -12,9 +12,14 @@ class RateLimit:
     def __init__(self, store: Store, per_minute: int = 60) -> None:
         self._store = store
-        self._per_minute = per_minute
+        self._per_minute = per_minute
+        self._burst = max(1, per_minute // 5)

     async def allow(self, client: str) -> bool:
-        return await self._store.incr(client) <= self._per_minute
+        used = await self._store.incr(client, ttl_s=60)
+        if used > self._per_minute + self._burst:
+            metrics.rejected.inc()
+            return False
+        return True
"""

TABLE = """\
| service | requests | errors | p50 (ms) | p99 (ms) | owner |
|---|---|---|---|---|---|
| orders-api | 182,440 | 12 | 18.2 | 140.7 | Renata |
| invoices-export | 1,204 | 0 | 812.0 | 2,310.4 | Tomás |
| search | 904,118 | 377 | 6.4 | 51.9 | Mei |
| notifications | 55,019 | 4 | 33.3 | 402.1 | Joana |
"""

REFERENCE = {
    "English prose": (ENGLISH, 129),
    "Spanish prose": (SPANISH, 144),
    "Portuguese prose": (PORTUGUESE, 143),
    "Chinese prose": (CHINESE, 125),
    "Japanese prose": (JAPANESE, 152),
    "Korean prose": (KOREAN, 117),
    "Python code": (PYTHON, 193),
    "Go code": (GO, 201),
    "JSON logs": (JSON_LOG, 810),
    "a diff": (DIFF, 211),
    "a table": (TABLE, 133),
}
"""Invented texts, each with the count that the reference tokenizer gave for it."""


@pytest.mark.parametrize("what", REFERENCE)
def test_the_estimate_is_within_ten_percent_of_the_reference(what: str) -> None:
    text, reference = REFERENCE[what]

    assert abs(count(text) - reference) <= 0.1 * reference, f"{what}: {count(text)} for {reference}"


def test_a_whole_prompt_is_closer_than_its_parts() -> None:
    prompt = "\n\n".join(text for text, _ in REFERENCE.values())
    reference = sum(tokens for _, tokens in REFERENCE.values())

    assert abs(count(prompt) - reference) <= 0.05 * reference


def test_an_empty_text_has_no_tokens_and_any_other_has_some() -> None:
    assert count("") == 0
    assert count("a") == 1
    assert count("\ud83d") >= 1


def test_drawn_out_lines_and_blanks_cost_little() -> None:
    assert count("=" * 800) < 40
    assert count(" " * 800) < 40


@given(text=st.text(max_size=200), more=st.text(max_size=200))
def test_a_longer_text_never_counts_fewer_tokens(text: str, more: str) -> None:
    assert count(text) <= count(f"{text} {more}") + 1


@given(pieces=st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=8))
def test_pieces_sum_up_to_about_the_whole(pieces: list[str]) -> None:
    separate = sum(map(partial(count), pieces))

    assert count("".join(pieces)) <= separate + 4 * len(pieces)
