//! A WebAssembly module as scorer: the same question and the same answer as a program's, without a program. It is run in
//! this process, where it has its input and nothing else.

use super::MOST;
use crate::suite::{ModuleFile, ScorerSpec};
use crate::{EngineError, Stop};
use cofferdam_compare::custom::Failure;
use cofferdam_model::Digest;
use cofferdam_runtime_wasm::{Call, How, LARGEST, Limits, Program};
use std::fs::File;
use std::io::Read;

/// Where the suite says nothing of it.
const MEMORY: u64 = 256 << 20;

pub(super) struct Module {
    program: Program,
    pub(super) digest: Digest,
}

impl Module {
    /// Once for all sessions: what cannot be run at all is told before anything is.
    pub(super) fn read(file: &ModuleFile) -> Result<Self, EngineError> {
        let path = &file.path;
        let unreadable = |source| EngineError::Unreadable { path: path.clone(), source };
        let mut bytes = Vec::new();
        // one more than can be, so that it is seen to be too large
        let opened = File::open(path).map_err(unreadable)?;
        opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let found = cofferdam_seal::digest(&bytes);
        if let Some(wanted) = file.digest.filter(|wanted| *wanted != found) {
            return Err(EngineError::OtherModule { path: path.clone(), found, wanted });
        }
        let refused = |source| EngineError::Module { path: path.clone(), source };
        Ok(Self { program: Program::compile(&bytes).map_err(refused)?, digest: found })
    }

    pub(super) fn ask(&self, spec: &ScorerSpec, question: &[u8], stop: &Stop) -> Result<Vec<u8>, Failure> {
        let timeout = spec.timeout.0;
        let memory = spec.memory.map_or(MEMORY, |bytes| bytes.0);
        let limits = Limits { timeout, memory, output: MOST };
        let call = Call { args: &[spec.name.as_str()], input: question, limits };
        let ended = self.program.run(call, &|| stop.is_raised());
        let broke = |how: String| {
            let refused = format!("{how} after it was refused more than {memory} bytes of memory");
            let how = if ended.short_of_memory { refused } else { how };
            Err(Failure::Broke { how, words: String::from_utf8_lossy(&ended.errors).into_owned() })
        };
        match ended.how {
            How::Exited(0) => Ok(ended.output),
            How::Exited(code) => broke(format!("ended with code {code}")),
            How::Trapped(why) => broke(format!("broke off ({why})")),
            How::StackOverflow => broke("broke off (its calls went deeper than its stack)".into()),
            How::OutOfWork(most) => {
                broke(format!("had not answered after {most} instructions, which is what `timeout` is worth"))
            }
            How::Late => Err(Failure::Late(timeout.as_secs())),
            How::TooLong => Err(Failure::TooLong(MOST)),
            How::Stopped => Err(Failure::NotAsked("somebody stopped the gate".into())),
        }
    }
}
