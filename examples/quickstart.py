"""Twenty lines: a task, two calls of it, their results. Runs without a server."""

from rota import Rota

app = Rota(embedded=True)  # a coordinator inside, on rota.db, unless ROTA_URL names one


@app.task(max_attempts=5)
async def greet(name: str, times: int = 1) -> str:
    return " ".join([f"Hello, {name}!"] * times)


def main() -> None:
    one = greet.enqueue("world")
    many = greet.using(priority=9).enqueue("again", times=3)
    print(one.result(timeout=30))
    print(many.result(timeout=30))


if __name__ == "__main__":
    main()
