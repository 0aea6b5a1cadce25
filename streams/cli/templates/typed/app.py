"""Warns of customers who spend more than usual: values are dataclasses, and functions and type checkers know their fields."""

from dataclasses import dataclass

from streams import JsonSerde, Materialized, StreamsBuilder, Topology


@dataclass
class Order:
    """A record of the topic `orders`; its key is the order number."""

    customer: str
    amount: float


@dataclass
class Account:
    """What is known of a customer."""

    orders: int = 0
    total: float = 0.0
    newest: float = 0.0


@dataclass
class Alert:
    """A record of the topic `alerts`."""

    customer: str
    amount: float
    usual: float


def count(customer: str, order: Order, account: Account) -> Account:
    """The account after one more order."""
    return Account(account.orders + 1, account.total + order.amount, order.amount)


def is_unusual(customer: str, account: Account) -> bool:
    """Whether the newest order is more than three times the mean of those before."""
    before = account.orders - 1
    return before > 0 and account.newest > 3 * (account.total - account.newest) / before


def alert(customer: str, account: Account) -> Alert:
    """The warning."""
    return Alert(customer, account.newest, (account.total - account.newest) / (account.orders - 1))


def build() -> Topology:
    """Reads `orders` and writes `alerts`."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", value_serde=JsonSerde(Order))
    accounts = orders.group_by(lambda order: order.customer).aggregate(
        Account, count, materialized=Materialized(name="accounts", value_serde=JsonSerde(Account), caching=False)
    )
    accounts.to_stream().filter(is_unusual).map_values(alert).to("alerts", value_serde=JsonSerde(Alert))
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "APPLICATION")
