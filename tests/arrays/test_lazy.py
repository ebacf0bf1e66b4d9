"""Attributes computed when they are first read: once, kept, and without a lock."""

from threading import Barrier, Thread

from dualpca.arrays import cached_property


class Counted:
    def __init__(self, gate=None):
        self.calls, self.gate = 0, gate

    @cached_property
    def value(self):
        """What is counted."""
        self.calls += 1
        if self.gate is not None:
            self.gate.wait(10)
        return object()


def test_a_value_is_computed_once_and_kept():
    one = Counted()
    assert one.value is one.value is vars(one)["value"]
    assert one.calls == 1
    assert Counted.value.__doc__ == "What is counted."


def test_threads_at_once_do_not_wait_for_each_other_and_get_the_same_value():
    one, found = Counted(Barrier(2)), []  # with a lock, the second would never reach the gate
    threads = [Thread(target=lambda: found.append(one.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.calls == 2
    assert found[0] is found[1] is one.value
