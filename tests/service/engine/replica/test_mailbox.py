"""The mailbox of a replica: jobs run alone and in order, and every caller gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from service.engine.replica.mailbox import Job, Mailbox
from service.errors import Damaged, LearnerGone, ServiceError, StoreUnavailable

pytestmark = pytest.mark.integration


class Owner:
    """An owner that plans the background work of its mailbox."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.deletions = 0
        self.order: list[str] = []
        self.mailbox = Mailbox("a", self.plan, self.report_gone)

    def plan(self) -> Iterator[Job]:
        jobs, self.jobs = self.jobs, []
        yield from jobs

    def report_gone(self) -> None:
        self.deletions += 1

    def job(self, name: str, error: BaseException | None = None, pause: int = 0) -> Job:
        async def run() -> None:
            self.order.append(f"{name} begins")
            for _ in range(pause):
                await asyncio.sleep(0)
            if error is not None:
                raise error
            self.order.append(f"{name} ends")

        return Job(run)


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    owner = Owner()
    yield owner
    await owner.mailbox.close()


async def test_jobs_run_alone_and_in_order_except_urgent_ones(owner: Owner) -> None:
    values = [owner.mailbox.submit(owner.job(name, pause=3).run) for name in "abc"]
    values.append(owner.mailbox.submit(owner.job("d").run, urgent=True))
    assert owner.mailbox.last is values[2]
    await asyncio.gather(*values)
    assert owner.order == [f"{name} {what}" for name in "dabc" for what in ("begins", "ends")]
    assert not owner.mailbox.busy
    assert owner.mailbox.last is None


async def test_due_jobs_are_requested_after_each_job_and_on_wake(owner: Owner) -> None:
    owner.jobs = [owner.job("due"), owner.job("urgent")._replace(urgent=True)]
    await asyncio.gather(*(owner.mailbox.submit(owner.job(name).run) for name in "ab"))
    owner.jobs = [owner.job("woken")]
    assert "woken begins" not in owner.order
    owner.mailbox.wake()
    await owner.mailbox.run(owner.job("last").run)
    assert owner.order.index("urgent begins") < owner.order.index("b begins") < owner.order.index("due begins")


async def test_a_disconnected_caller_does_not_stop_its_job(owner: Owner) -> None:
    calling = asyncio.create_task(owner.mailbox.run(owner.job("a", pause=5).run))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel()
    await owner.mailbox.run(owner.job("b").run)
    assert owner.order == ["a begins", "a ends", "b begins", "b ends"]


async def test_an_unreachable_store_fails_one_job(owner: Owner) -> None:
    with pytest.raises(StoreUnavailable):
        await owner.mailbox.run(owner.job("a", StoreUnavailable("away")).run)
    await owner.mailbox.run(owner.job("b").run)
    assert owner.mailbox.failure is None


@pytest.mark.parametrize(("error", "deletions"), [(Damaged("unreadable"), 0), (LearnerGone("deleted"), 1)])
async def test_fatal_errors_stop_the_mailbox(owner: Owner, error: ServiceError, deletions: int) -> None:
    with owner.mailbox.watch() as changed:
        first = owner.mailbox.submit(owner.job("a", error).run)
        second = owner.mailbox.submit(owner.job("b").run)
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.wait_for(changed.wait(), 10)
    assert outcomes == [owner.mailbox.failure] * 2
    assert str(outcomes[0]).startswith(error.detail)
    assert type(outcomes[0]) is type(error)
    assert owner.deletions == deletions
    assert owner.order == ["a begins"]
    with pytest.raises(type(error)):
        owner.mailbox.check()


async def test_a_bug_in_a_job_answers_every_waiting_caller(owner: Owner) -> None:
    jobs = [owner.job("a", ZeroDivisionError()), owner.job("b")]
    outcomes = await asyncio.gather(*(owner.mailbox.submit(job.run) for job in jobs), return_exceptions=True)
    assert [type(error) for error in outcomes] == [ServiceError] * 2


async def test_close_runs_queued_jobs_and_plans_no_more(owner: Owner) -> None:
    values = [owner.mailbox.submit(owner.job(name).run) for name in "ab"]
    owner.jobs = [owner.job("due")]
    await owner.mailbox.close()
    assert all(future.done() and future.exception() is None for future in values)
    assert owner.order == ["a begins", "a ends", "b begins", "b ends"]
    with pytest.raises(LearnerGone):
        await owner.mailbox.run(owner.job("c").run)


async def test_a_mailbox_does_not_keep_its_owner_in_memory() -> None:
    owner = Owner()
    mailbox = owner.mailbox
    del owner
    mailbox.wake()
    await mailbox.close()
    assert mailbox.task.done()
