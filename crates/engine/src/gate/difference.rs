//! Two runs beside each other, and one as others write it: what was done otherwise, without a judgement. A trace whose
//! chain or signature is broken is not taken for a run.

use super::side::{Side, Whose};
use super::{GateError, pairs};
use crate::{Engine, EngineError, Trace};
use cofferdam_compare::delta::{Diff, Options, diff};
use cofferdam_compare::effects::Effects;
use cofferdam_model::Run;
use serde::Serialize;

/// What the second run did that the first did not, and the other way round.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    #[serde(skip)]
    pub base: Run,
    #[serde(skip)]
    pub new: Run,
    /// What is doubtful about either.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    #[serde(flatten)]
    pub diff: Diff,
}

impl Engine {
    pub fn diff_traces(&self, base: &Trace, new: &Trace) -> Result<Difference, EngineError> {
        let (base, new) = (self.side(base, Whose::Baseline)?, self.side(new, Whose::New)?);
        let doubts = base.doubts.iter().chain(&new.doubts).map(|doubt| doubt.text.clone()).collect();
        let effects = Effects::learned([&base.run]);
        let diff = diff(&base.run, &new.run, &effects, &Options::default());
        Ok(Difference { base: base.run, new: new.run, doubts, diff })
    }

    /// As an ATIF trajectory.
    pub fn export_atif(&self, trace: &Trace) -> Result<serde_json::Value, EngineError> {
        let side = self.side(trace, Whose::New)?;
        Ok(cofferdam_trace::to_atif(&side.run, env!("CARGO_PKG_VERSION")))
    }

    fn side(&self, trace: &Trace, whose: Whose) -> Result<Side, EngineError> {
        let name = match &trace.id {
            Some(id) => id.to_string(),
            None => trace.path.display().to_string(),
        };
        let keys = pairs::believed(self, &[])?;
        let mut sides = pairs::sides(&trace.path, &name, &keys, whose)?;
        match (sides.pop(), sides.len()) {
            (Some(Ok(side)), 0) => Ok(side),
            (Some(Err(reason)), 0) => Err(GateError::Unusable { name, why: reason.text }.into()),
            (_, others) => Err(GateError::Several { path: trace.path.clone(), count: others + 1 }.into()),
        }
    }
}
