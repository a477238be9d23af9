"""Commands that each service may send. The owner of a stream refuses all others.

A node has the rights of `trainer`, and may only speak for itself.
"""

from typing import Final

from schemas import account, admission, dataset, deployments, gate, job, lifetime, model, node, pool
from schemas.anomaly import RecordAnomaly
from schemas.answers import CountAnswers
from schemas.batch import AnswerBatchRows, BeginBatch, CancelBatch, CreateBatch, EndBatch
from schemas.endpoints import ConfirmEndpoint
from schemas.enrolment import EnrolNode, InviteNode, RecordNodeKeys, RevokeInvitation
from schemas.envelope import Message, Tick
from schemas.erasure import CloseJobs, EraseFiles, EraseModels, EraseTenant, RecordErasedPart
from schemas.imports import EndImport, RecordImport, StartImport
from schemas.integrations import RecordMirror, RemoveTrackingServer, SetTrackingServer
from schemas.lease_keys import RecordLeaseKeys, RequestLeaseKeys
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.serving import RemoveServingPool, SetServingPool
from schemas.session import (
    AnswerCommand,
    CloseSession,
    EndSession,
    LeaseSession,
    OpenSession,
    SetSessionTerms,
    TakeCommand,
    TouchSession,
)
from schemas.streams import Permit
from schemas.sweep import CancelSweep, SubmitSweep
from schemas.works import DescribeWork


def _permit(sender: str, *commands: type[Message]) -> Permit:
    return Permit(sender, frozenset(commands))


ACCOUNT: Final = (
    _permit("billing", account.CloseInvoice, account.ImportPrices, RecordErasedPart, Tick),
    _permit("engine", CountAnswers),
    _permit("exporter", account.Announce),
    _permit(
        "gateway",
        *(account.CreateTenant, account.SetPlan, account.SuspendTenant, account.ResumeTenant),
        *(account.CreateKey, account.RotateKey, account.RevokeKey),
        *(account.CreateEndpoint, account.ChangeEndpoint, account.RotateEndpoint),
        *(account.DeleteEndpoint, account.Deliver, ConfirmEndpoint),
        *(account.ImportPrices, account.SetBillingTerms, account.AdjustInvoice),
        *(GrantPrepaid, RevokePrepaid, EraseTenant, SetTrackingServer, RemoveTrackingServer),
        *(CreateBatch, BeginBatch, AnswerBatchRows, CancelBatch, EndBatch),
        *(StartImport, RecordImport, EndImport),
    ),
    _permit("ingest", RecordErasedPart),
    _permit("notifier", account.EndDelivery),
    _permit("registry", RecordErasedPart),
    _permit("scheduler", account.Announce, RecordErasedPart, node.WithdrawNodeKeys),
    _permit("trainer", CountAnswers),
)
DATASET: Final = (
    _permit("billing", EraseFiles),
    _permit(
        "gateway",
        *(dataset.RegisterFile, dataset.DeleteFile, dataset.CreateUpload, dataset.AddPart),
        *(dataset.CompleteUpload, dataset.CancelUpload),
    ),
    _permit("ingest", dataset.RecordValidation, dataset.RecordPrepared, EraseFiles, Tick),
    _permit("registry", dataset.KeepDataset, dataset.ReleaseDataset),
    _permit("scheduler", dataset.PinDataset, dataset.UnpinDataset),
)
JOB: Final = (
    _permit("billing", job.SetLimits, admission.SetSuspension, admission.RecordAnswers, CloseJobs),
    _permit("eval", job.RecordVerdict, gate.RecordLook),
    _permit(
        "gateway",
        *(job.SubmitJob, job.CancelJob, job.PauseJob, job.ResumeJob, job.RaiseSession),
        *(admission.SetBudget, admission.RemoveBudget, SubmitSweep, CancelSweep),
        *(SetServingPool, RemoveServingPool),
    ),
    _permit("ingest", job.RecordFile, job.RecordDataset),
    _permit("notifier", RecordMirror),
    _permit("registry", job.RecordBase, job.RecordRegistered),
    _permit(
        "scheduler",
        *(job.RecordWait, job.RecordGranted, job.RecordStarted, job.RecordCheckpoint),
        *(job.RecordDraining, job.RecordUsage, job.RecordClosed, CloseJobs, Tick),
        job.RecordSessionEnding,
    ),
    _permit("watcher", RecordAnomaly),
)
POOL: Final = (
    _permit("billing", RecordLeaseKeys),
    _permit(
        "gateway",
        node.CordonNode,
        node.UncordonNode,
        node.DrainNode,
        node.ForgetNode,
        node.WithdrawNodeKeys,
        InviteNode,
        RevokeInvitation,
        EnrolNode,
    ),
    _permit(
        "scheduler",
        node.WithdrawNodeKeys,
        RecordNodeKeys,
        *(pool.ObserveNodes, DescribeWork, pool.ForgetWork),
        *(pool.RequestPlacement, pool.ClosePlacement, Tick),
    ),
    _permit(
        "trainer",
        *(pool.RegisterNode, node.JoinNode, node.LeaveNode, node.NoticeNode, node.WarnNode),
        *(node.ReportDeviceFaults, node.ResizeNode, pool.RetireNode, pool.ConfirmFreed),
        *(RequestLeaseKeys, pool.ReportRendezvous, pool.ReportWait, pool.ReportStarted),
        *(pool.ReportCheckpoint, pool.ReportExit),
    ),
)
MODEL: Final = (
    _permit("billing", EraseModels),
    _permit(
        "gateway",
        *(model.AddBase, model.Promote, model.RollBack, model.DeleteVersion),
        *(lifetime.RestoreVersion, model.SetApprovalRule, model.ApproveVersion),
        *(model.RecordBaseBytes, model.ShareCheckpoint, model.UnshareCheckpoint),
        *(gate.SetGatePolicy, gate.SetQuarantine, gate.AddBenchmark, gate.RemoveBenchmark),
        *(deployments.Deploy, deployments.CountTraffic),
    ),
    _permit("registry", model.RecordPublished, EraseModels, Tick),
    _permit(
        "scheduler",
        *(model.PinBase, model.RegisterVersion, lifetime.KeepVersion, lifetime.ReleaseVersion),
        gate.RecordGateRun,
    ),
)
SESSION: Final = (
    _permit("gateway", TakeCommand, TouchSession, EndSession),
    _permit("scheduler", OpenSession, LeaseSession, SetSessionTerms, CloseSession, Tick),
    _permit("trainer", AnswerCommand),
)
