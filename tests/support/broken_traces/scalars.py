"""Broken tables, histories and event files of scalars."""

from tests.support.training_logs import VERSION

from .kinds import bytes_file

bytes_file("table without a step time", "steps.csv", b"loss,lr\n1,2\n", r":1: no column of step times\. Looked")
bytes_file("table without a unit", "steps.csv", b"step,step_time\n1,50\n", " 'step_time': nothing says the unit")
bytes_file("table of two times", "w.csv", b"Step,step_time_s,step_time_ms\n1,2,2\n", ":1: several could be")
bytes_file("table with a word", "steps.csv", b"step,step_time_s\n1,x\n", ":2 step_time_s: 'x' is not a number")
bytes_file("history that is cut", "h.jsonl", b'{"_step": 1, "step_time_s": 1}\n{"_step": 2, "st', ":2: not JSON")
bytes_file(
    "state of a trainer without times",
    "trainer_state.json",
    b'{"global_step": 5, "log_history": [{"loss": 2.0, "step": 5}], "max_steps": 5}',
    ": .*neither a step time nor train_runtime",
)
bytes_file(
    "state of a trainer that is cut",
    "trainer_state.json",
    b'{"global_step": 5, "log_history": [{"loss": 2.0, "step": 5}, {"lo',
    ": record 2 of log_history: not JSON",
)
bytes_file("event file without scalars", "events.out.tfevents.1", VERSION, ": .* without scalars")
bytes_file("event file that is damaged", "events.out.tfevents.1", VERSION + b"\xff" * 40, ": record 2 is damaged")
