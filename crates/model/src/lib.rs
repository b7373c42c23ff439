//! The nouns of Cofferdam as plain data: ids, digests, session specs, limits, events, reports.
//!
//! Everything else rests on this crate, so it is small and dull: no I/O, no clock, no randomness.
//! Whoever needs a time, an id or a key hands it in.

mod browser;
mod call;
mod cap;
mod change;
mod digest;
mod egress;
mod enforcement;
mod event;
mod id;
mod image;
mod live;
mod own;
mod path;
mod quantity;
mod record;
mod replay;
mod run;
mod spec;
mod step;
mod syscall;
mod tap;
mod tier;
mod tool;
mod volume;
mod wide;

pub use browser::{
    BrowserActed, BrowserDone, BrowserEnded, BrowserFault, BrowserOutcome, BrowserSeen, BrowserStarted, Sight,
};
pub use call::{
    AnswerRecorded, ExchangeRecorded, ModelCall, ModelCalled, ModelError, ModelMessage, ModelTool, Part,
    Payload, Tokens,
};
pub use cap::Cap;
pub use change::{AsidePath, Aspect, ChangeOp, Conflict, FileAsked, FileChange, FileKind, FileOp};
pub use digest::{Digest, DigestError};
pub use egress::{
    AlertSent, Answer, ApprovalAnswered, ControlChanged, CredentialBound, CredentialUsed, EgressDecided,
    EgressEnded, EgressOpened, EgressRefused, Ending, NameAsked, SqlDecided, SqlEnded, StrayPacket, Verdict,
    Via,
};
pub use enforcement::{Control, EnforcementReport, State};
pub use event::{
    BlobRef, BlockedAttempt, Body, ChangesDecided, Checkpoint, Event, ExecExited, ExecStarted, Exit,
    LimitHit, OutputCaptured, OutputSeen, SessionEnded, SessionStarted, SkippedChange, Stream, Usage,
};
pub use id::{IdError, SessionId};
pub use image::{ImageAccount, ImageConfig, ImageInfo, ImageName, ImageNameError, ImageNotes};
pub use live::{
    Counters, ExecInfo, ExecTx, FileDifference, Lifetime, Live, LiveState, PoolInfo, PoolKind, Provenance,
    SessionChanged, SessionInfo, Settled, Snapshot, TimeOver, UsageRecord, UsageTotal, is_name,
};
pub use own::{OwnAnswer, OwnRequest};
pub use path::RawPath;
pub use quantity::{Bytes, Cores, QuantityError, Span};
pub use record::{NotRecorded, Record};
pub use replay::{
    Difference, Fallback, Matching, Miss, Nearest, ReplayMissed, ReplayServed, ReplayStarted, Speed,
};
pub use run::{Act, ActKind, Decided, EffectOf, Run, Spent, Status};
pub use spec::{
    BoxUser, Changes, Isolation, LayerPlace, Limits, Mount, MountError, Profile, SessionSpec, SpecError,
    UserMode, Warm, Weakness,
};
pub use step::{StepEnded, StepReplanned, StepStarted, StepVia};
pub use syscall::{SyscallSeen, Syscalls};
pub use tap::{Mended, Next, Outgoing, Question, Reply, Stop, Tap, Watcher};
pub use tier::{Tier, TierError};
pub use tool::{
    Content, ToolCalled, ToolChanged, ToolFault, ToolListed, ToolOffered, ToolOutcome, ToolRegistered,
    ToolReturned, ToolSide, ToolVia,
};
pub use volume::{VolumeError, VolumeInfo, VolumeMount, VolumeName};
