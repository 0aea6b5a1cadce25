"""The topology, tested without Kafka and without Spark."""

from app import Alert, Order, build

from streams.testing import TopologyTestDriver


def test_an_order_of_more_than_three_times_the_usual_amount_is_an_alert() -> None:
    with TopologyTestDriver(build()) as driver:
        orders = driver.create_input_topic("orders")
        for number, amount in enumerate([10.0, 14.0, 12.0, 60.0]):
            orders.pipe_input(f"o{number}", Order("ann", amount), timestamp=number)
        assert driver.create_output_topic("alerts").read_values_to_list() == [Alert("ann", 60.0, 12.0)]
