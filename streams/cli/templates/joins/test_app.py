"""The topology, tested without Kafka and without Spark."""

from app import build

from streams.testing import TopologyTestDriver

MINUTE = 60_000


def test_a_paid_order_counts_for_the_region_of_its_customer() -> None:
    with TopologyTestDriver(build()) as driver:
        customers, orders, payments = map(driver.create_input_topic, ("customers", "orders", "payments"))
        revenue = driver.create_output_topic("revenue-by-region")
        customers.pipe_input("ann", {"region": "north"}, timestamp=0)
        orders.pipe_input("o1", {"customer": "ann"}, timestamp=MINUTE)
        payments.pipe_input("o1", {"amount": 30}, timestamp=2 * MINUTE)
        orders.pipe_input("o2", {"customer": "ann"}, timestamp=3 * MINUTE)
        payments.pipe_input("o2", {"amount": 12}, timestamp=4 * MINUTE)
        assert revenue.read_key_values_to_list()[-1] == ("north", {"hour": 0, "revenue": 42})


def test_a_payment_that_comes_too_late_is_not_joined() -> None:
    with TopologyTestDriver(build()) as driver:
        customers, orders, payments = map(driver.create_input_topic, ("customers", "orders", "payments"))
        customers.pipe_input("ann", {"region": "north"}, timestamp=0)
        orders.pipe_input("o1", {"customer": "ann"}, timestamp=MINUTE)
        payments.pipe_input("o1", {"amount": 30}, timestamp=7 * MINUTE)
        assert driver.create_output_topic("sales").is_empty
