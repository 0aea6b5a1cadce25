"""A peer of three dozen lines for the harness's tests: W1 by the plain client, at least once, in one thread.

python counting_peer.py CONFIG.json [wrong | unable | dying]
"""

import json
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer


def work() -> None:
    """CPU that the harness can see: it measures in ticks of 10 ms, and perhaps the last batch alone."""
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    how = sys.argv[2] if len(sys.argv) > 2 else "right"
    if how == "unable":
        print("it has no windows", file=sys.stderr)
        sys.exit(64)
    if how == "dying":
        sys.exit("broken on purpose")
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    servers = {"bootstrap.servers": config["bootstrap_servers"]}
    group = {"group.id": config["application_id"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer, producer = Consumer({**servers, **group}), Producer(servers)
    consumer.subscribe([config["topics"]["events"]])
    windows: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0.0])
    size = config["parameters"]["window_ms"]
    while not stopped:
        changed = set()
        for message in consumer.consume(5_000, 0.2):
            window = (message.key().decode(), message.timestamp()[1] // size * size)
            windows[window][0] += 1
            windows[window][1] += json.loads(message.value())["v"][0]
            changed.add(window)
        for key, start in changed:
            count, total = windows[key, start]
            value = {"count": count + (how == "wrong"), "mean": total / count}
            producer.produce(config["topics"]["out"], json.dumps(value), f"{key}|{start}")
        producer.flush()
        if changed:
            work()
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
