"""Work on several sets of CPUs at once, a server and its client on each."""
import concurrent.futures
import os
import queue


def spread(machines, tasks, work):
    """[work(machine, task)] of all tasks, each on a machine that is free and on that one's CPUs alone."""
    if len(machines) == 1:
        return [on_its_cpus(machines[0], task, work) for task in tasks]
    free = queue.SimpleQueue()
    for machine in machines:
        free.put(machine)

    def one(task):
        machine = free.get()
        try:
            return on_its_cpus(machine, task, work)
        finally:
            free.put(machine)

    with concurrent.futures.ThreadPoolExecutor(len(machines)) as pool:
        try:
            return list(pool.map(one, tasks))
        except BaseException:  # whoever waits for a server or client would wait until it ends by itself
            pool.shutdown(wait=False, cancel_futures=True)
            for machine in machines:
                machine.end()
            raise


def on_its_cpus(machine, task, work):
    if machine.cpus:
        os.sched_setaffinity(0, machine.cpus)  # of this thread, and of the processes that it starts
    return work(machine, task)


def cpus_of(text):
    """A list as taskset takes it: 2,3 or 4-7."""
    parts = [part.split("-") for part in text.split(",")]
    return {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)}
