//! The nouns of Cofferdam as plain data: ids, digests, session specs, limits, events, reports.
//!
//! Everything else rests on this crate, so it is small and dull: no I/O, no clock, no randomness.
//! Whoever needs a time, an id or a key hands it in.

mod change;
mod digest;
mod egress;
mod enforcement;
mod event;
mod id;
mod live;
mod path;
mod quantity;
mod record;
mod run;
mod spec;
mod tap;
mod tier;
mod wide;

pub use change::{Aspect, ChangeOp, FileChange, FileKind};
pub use digest::{Digest, DigestError};
pub use egress::{
    AlertSent, Answer, ApprovalAnswered, ControlChanged, CredentialUsed, EgressDecided, EgressEnded,
    EgressRefused, Ending, NameAsked, StrayPacket, Verdict, Via,
};
pub use enforcement::{Control, EnforcementReport, State};
pub use event::{
    BlobRef, BlockedAttempt, Body, ChangesDecided, Checkpoint, Event, ExecExited, ExecStarted, Exit,
    LimitHit, OutputCaptured, SessionEnded, SessionStarted, SkippedChange, Stream, Usage,
};
pub use id::{IdError, SessionId};
pub use live::{Counters, ExecInfo, Lifetime, Live, LiveState, SessionChanged, SessionInfo};
pub use path::RawPath;
pub use quantity::{Bytes, Cores, QuantityError, Span};
pub use record::{NotRecorded, Record};
pub use run::{Act, ActKind, Decided, EffectOf, Run, Spent, Status};
pub use spec::{
    BoxUser, Changes, Isolation, LayerPlace, Limits, Mount, MountError, Profile, SessionSpec, SpecError,
    UserMode, Weakness,
};
pub use tap::{Next, Outgoing, Reply, Stop, Tap, Watcher};
pub use tier::{Tier, TierError};
