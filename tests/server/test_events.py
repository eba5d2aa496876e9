from longtake.server.events import EventLog, SessionEvent


def test_ids_grow_and_who_listens_hears_all_in_order() -> None:
    log, heard = EventLog(), list[SessionEvent]()
    log.add("a")
    log.listen(heard.append)
    log.add("b", number=2)
    log.stop_listening(heard.append)
    log.add("c")
    assert [event.record for event in heard] == [{"id": 2, "type": "b", "number": 2}]
    assert [event.id for event in log.after(0)] == [1, 2, 3]
    assert log.num_listeners == 0


def test_who_comes_back_hears_what_it_missed_and_nothing_twice() -> None:
    log, heard = EventLog(), list[SessionEvent]()
    for name in "abc":
        log.add(name)
    page, newest = log.follow(heard.append, after=0, most=2)
    assert ([event.type for event in page], newest, log.num_listeners) == (["a", "b"], None, 0)
    page, newest = log.follow(heard.append, after=2, most=2)
    assert ([event.type for event in page], newest) == (["c"], 3)
    log.add("d")
    assert [event.type for event in heard] == ["d"]


def test_history_is_bounded_and_says_what_is_gone() -> None:
    log = EventLog(most=3)
    for number in range(10):
        log.add("x", number=number)
    first, *kept = log.after(2)
    assert (first.type, first.fields) == ("history.gone", {"after": 2, "first": 8})
    assert [event.id for event in kept] == [8, 9, 10]
    assert [event.id for event in log.after(7)] == [8, 9, 10]
    assert log.after(10) == []


def test_ids_may_begin_anywhere() -> None:
    log = EventLog(first_id=500)
    assert log.add("x").id == 500
    assert log.next_id == 501
