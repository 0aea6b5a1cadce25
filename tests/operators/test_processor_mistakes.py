"""What is wrong with a processor is said when it is declared or when it runs, and no policy for bad records hides it."""

from functools import cached_property

import pytest

from streams import (
    JsonSerde,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    TopologyError,
    ValueTransformer,
    Window,
    Windowed,
    WrappedProcessor,
)
from streams.testing import TopologyTestDriver


class Pass(Processor):
    def process(self, record):
        self.ctx.forward(record)


def run(supplier, values=(1,), driver_settings=None, wrapper=None, method="process"):
    """Run records through a processor, each in a micro-batch of its own; what comes out."""
    builder = StreamsBuilder(processor_wrapper=wrapper)
    getattr(builder.stream("in"), method)(supplier, [], "mine").to("out")
    with TopologyTestDriver(builder.build(), **(driver_settings or {})) as driver:
        for time, value in enumerate(values):
            driver.create_input_topic("in").pipe_input("a", value, time)
        return driver.create_output_topic("out").read_values_to_list()


class ByKeyAndValue(Processor):
    def process(self, key, value):
        pass


class InitWithoutContext(Processor):
    def init(self):
        pass

    def process(self, record):
        pass


class CloseWithArguments(Processor):
    def close(self, error):
        pass

    def process(self, record):
        pass


class WithLimit(Pass):
    def __init__(self, limit):
        self.limit = limit


@pytest.mark.parametrize(
    ("supplier", "said"),
    [
        (Pass(), r"takes a supplier of processors, such as the class or a lambda, not <"),
        (lambda record: None, r"calling <lambda> without arguments, but it wants record: give a class, or lambda"),
        (WithLimit, r"calling WithLimit without arguments, but it wants limit: give lambda: WithLimit\(limit\)"),
        (dict, r"let the class dict inherit from Processor"),
        (
            ByKeyAndValue,
            r"ByKeyAndValue.process\(self, key, value\) cannot be called: it is def process\(self, record\)",
        ),
        (InitWithoutContext, r"InitWithoutContext.init\(self\) cannot be called: it is def init\(self, ctx\)"),
        (CloseWithArguments, r"CloseWithArguments.close\(self, error\) cannot be called: it is def close\(self\)"),
    ],
)
def test_what_makes_no_processors_is_refused_when_it_is_declared(supplier, said):
    with pytest.raises(TopologyError, match=said):
        StreamsBuilder().stream("in").process(supplier)


@pytest.mark.parametrize(
    ("supplier", "said"),
    [
        (lambda: 5, r"gave 5: it must give an object of a class that inherits from Processor"),
        (lambda: ByKeyAndValue(), r"it is def process\(self, record\)"),
    ],
)
def test_what_a_function_makes_is_looked_at_when_it_is_made(supplier, said):
    with pytest.raises(TopologyError, match=said):
        run(supplier, driver_settings={"processing": "skip"})


class OfTheValue(ValueTransformer):
    def transform(self, value):
        return value


def test_a_transformer_that_cannot_be_called_is_refused():
    builder = StreamsBuilder()
    builder.table("in").transform_values(OfTheValue).to_stream().to("out")
    with (
        TopologyTestDriver(builder.build(), processing="skip") as driver,
        pytest.raises(
            TopologyError, match=r"OfTheValue\.transform\(self, value\) cannot .* def transform\(self, key, value\)"
        ),
    ):
        driver.create_input_topic("in").pipe_input("a", 1, 1)


def returning(value):
    class Returning(Processor):
        def process(self, record):
            return value

    return Returning


class Yielding(Processor):
    def process(self, record):
        yield record


@pytest.mark.parametrize(
    ("supplier", "said"),
    [
        (returning(Record("a", 1, 5)), r"process returns Record\(key='a'.* in 'mine'.*self\.ctx\.forward"),
        (returning(False), r"process returns False in 'mine'"),
        (Yielding, r"Yielding\.process returns a generator \(it has a yield"),
    ],
)
@pytest.mark.parametrize("method", ["process", "process_values"])
def test_a_process_that_returns_something_is_no_records_fault(supplier, said, method):
    with pytest.raises(TopologyError, match=said):
        run(supplier, driver_settings={"processing": "skip"}, method=method)


def forwarding(*arguments):
    class Forwarding(Processor):
        def process(self, record):
            self.ctx.forward(*arguments)

    return Forwarding


@pytest.mark.parametrize(
    ("supplier", "said"),
    [
        (forwarding("a", 1), r"'mine' calls forward\('a', 1\): forward takes a Record"),
        (forwarding("a"), r"'mine' calls forward\('a'\): forward takes a Record"),
        (forwarding(Record("a", 1, 1), "nobody"), r"'mine' forwards to 'nobody', which is not a child of it. It has: "),
    ],
)
@pytest.mark.parametrize("method", ["process", "process_values"])
def test_what_cannot_be_forwarded_is_no_records_fault(supplier, said, method):
    with pytest.raises(TopologyError, match=said):
        run(supplier, driver_settings={"processing": "skip"}, method=method)


def scheduling(*arguments):
    class Scheduling(Pass):
        def init(self, ctx):
            super().init(ctx)
            ctx.schedule(*arguments)

    return Scheduling


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((10, "streamtime", print), r"no punctuation type 'streamtime': use PunctuationType.STREAM_TIME.* or "),
        ((10, print, "stream_time"), r"no punctuation type <built-in function print>"),
        ((10, "stream_time", None), r"'mine' schedules None, which cannot be called"),
        ((10, "stream_time", lambda: None), r"'mine' schedules <lambda>, which must take one argument: the time"),
        ((0, "stream_time", print), r"'mine' schedules every 0 ms: the interval must be at least 1 ms"),
        (("1s", "stream_time", print), r"interval of schedule in 'mine' must be a timedelta or whole milliseconds"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(arguments, said):
    with pytest.raises(TopologyError, match=said):
        run(scheduling(*arguments))


def remembering(make, remember):
    class Remembering(Processor):
        def init(self, ctx):
            super().init(ctx)
            self.mine = make()

        def process(self, record):
            remember(self)
            self.ctx.forward(record)

    return Remembering


def add_to(self):
    self.mine += 1


class Lazy(Processor):
    def process(self, record):
        self.mine = record.value


@pytest.mark.parametrize(
    "supplier",
    [
        remembering(int, add_to),
        remembering(dict, lambda self: self.mine.setdefault("a", 1)),
        remembering(list, lambda self: self.mine.append(1)),
        remembering(lambda: None, lambda self: setattr(self, "mine", object())),
        Lazy,
    ],
    ids=["number", "dict", "list", "object", "new"],
)
def test_an_attribute_that_would_be_lost_is_an_error(supplier):
    with pytest.raises(
        TopologyError, match=r"in 'mine' changes its attribute 'mine' after init.*transient = \('mine',\)"
    ):
        run(supplier, driver_settings={"processing": "skip"})


class Buffering(Processor):
    """Holds records back until the end of the micro-batch, and is empty then."""

    def init(self, ctx):
        super().init(ctx)
        self.buffer = []

    def process(self, record):
        self.buffer.append(record)

    def flush(self):
        for record in self.buffer:
            self.ctx.forward(record)
        self.buffer = []


class Caching(Pass):
    transient = ("calls",)

    def init(self, ctx):
        super().init(ctx)
        self.calls = 0

    def process(self, record):
        self.calls += 1
        super().process(record)


class CachingOne(Caching):
    transient = "calls"


class Computing(Pass):
    @cached_property
    def answer(self):
        return 42

    def process(self, record):
        self.ctx.forward(record.with_value(self.answer))


@pytest.mark.parametrize(
    ("supplier", "out"), [(Buffering, [1, 2]), (Caching, [1, 2]), (CachingOne, [1, 2]), (Computing, [42, 42])]
)
def test_what_need_not_last_may_be_kept_in_attributes(supplier, out):
    assert run(supplier, [1, 2]) == out


def test_a_transformers_attributes_would_be_lost_too():
    class Counting(ValueTransformer):
        count = 0

        def transform(self, key, value):
            self.count += 1
            return self.count

    builder = StreamsBuilder()
    builder.table("in").transform_values(Counting).to_stream().to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(TopologyError, match=r"Counting in .* changes its attribute 'count'"),
    ):
        driver.create_input_topic("in").pipe_input("a", 1, 1)


def test_a_wrapper_may_count_in_its_attributes():
    class Counted(WrappedProcessor):
        records = 0

        def process(self, record):
            self.records += 1
            super().process(record)

    assert run(Pass, wrapper=Counted) == [1]


def test_a_wrapper_gets_the_users_own_processor():
    wrapped = {}
    run(Pass, wrapper=lambda node, inner: wrapped.setdefault(node, inner))
    assert type(wrapped["mine"]) is Pass


def test_help_says_first_that_attributes_remember_nothing():
    assert "its attributes remember nothing" in Processor.__doc__.split("\n\n")[0]


class WithoutSuper(Processor):
    def init(self, ctx):
        self.factor = 2

    def process(self, record):
        self.ctx.forward(record.with_value(self.factor * record.value))


def test_an_init_need_not_call_the_one_that_it_overrides():
    assert run(WithoutSuper) == [2]


class Looking(Processor):
    def process(self, record):
        shown = [name for name in dir(self.ctx) if not name.startswith("_")]
        self.ctx.forward(record.with_value(shown))


def test_a_processor_sees_users_methods_only():
    [shown] = run(Looking)
    assert shown == [
        "application_id",
        "current_stream_time_ms",
        "current_system_time_ms",
        "drop",
        "forward",
        "get_state_store",
        "headers",
        "node",
        "now_ms",
        "record_metadata",
        "schedule",
        "state",
        "store",
        "stream_time",
        "task_id",
        "topic",
    ]


class Where(Processor):
    def process(self, record):
        ctx = self.ctx
        times = ctx.stream_time, ctx.current_stream_time_ms(), ctx.now_ms == ctx.current_system_time_ms()
        self.ctx.forward(record.with_value([ctx.topic, [name for name, _ in ctx.headers], *times]))


def test_a_context_knows_the_record_in_process():
    builder = StreamsBuilder()
    builder.stream("in").process(Where).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, 7, headers=(("h", b"x"),))
        assert driver.create_output_topic("out").read_values_to_list() == [["in", ["h"], 7, 7, True]]


class Scans(Processor):
    """Does something to what the engine gives, as a program of Kafka Streams would."""

    def __init__(self, action):
        self.action = action

    def process(self, record):
        store = self.ctx.store("rows")
        store.put(record.key, record.value)
        self.action(store)


def first_key(store):
    for row in store.all():
        row.key  # noqa: B018


def closed(store):
    with store.all():
        pass


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (lambda store: store.all().has_next(), "a scan is an iterator of Python: for key, value in store.all()"),
        (first_key, "a row is a tuple of Python: for key, value in store.all()"),
        (closed, "and nothing has to be closed"),
        (lambda store: Windowed("a", Window(0, 5)).to_string(), r"use str\(windowed\)"),  # type: ignore[attr-defined]
        (lambda store: Windowed("a", Window(0, 5)).key(), "these are attributes, as in windowed.key"),
        (lambda store: Window(0, 5).key, r"a row of one key is \(window, value\)"),  # type: ignore[attr-defined]
    ],
)
def test_what_is_written_as_in_kafka_streams_is_answered(action, said):
    builder = StreamsBuilder().add_state_store(Stores.key_value_store("rows", StringSerde(), JsonSerde()))
    builder.stream("in").process(lambda: Scans(action), "rows").to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(Exception, match=said):
        driver.create_input_topic("in").pipe_input("a", 1)
