import threading

from accelerate.runtime.thread_local import ThreadLocalSharedDict


def test_thread_local_shared_dict_is_one_a_thread():
    class Owner:
        shared = ThreadLocalSharedDict()

    Owner.shared["a"] = 1
    seen = []
    thread = threading.Thread(target=lambda: seen.append(dict(Owner.shared)))
    thread.start()
    thread.join()
    assert seen == [{}]
    assert Owner.shared == {"a": 1}


def test_it_can_be_replaced_for_this_thread():
    class Owner:
        shared = ThreadLocalSharedDict(thread_local=True)

    Owner().shared = {"b": 2}
    assert Owner.shared == Owner().shared == {"b": 2}
