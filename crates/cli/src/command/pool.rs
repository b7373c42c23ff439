//! `cofferdam pool`: sandboxes that are prepared before anyone asks.

use crate::args::PoolCommand;
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, command: PoolCommand, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    if let PoolCommand::Set { size } = command {
        return Ok(engine.set_pool(size).map(|()| 0)?);
    }
    let info = engine.pool()?;
    if output.json {
        output.value(&info)?;
        return Ok(0);
    }
    let (size, claimed, missed) = (info.size, info.claimed, info.missed);
    output.data(&format!("size {size}; {claimed} sessions began with a prepared one, {missed} without\n"))?;
    for kind in &info.kinds {
        let egress = if kind.egress { "with a policy" } else { "without a policy" };
        let sudo = if kind.sudo { ", with sudo" } else { "" };
        let home = if kind.at_home { ", work dir at home" } else { "" };
        let (profile, users) = (format!("{:?}", kind.profile), format!("{:?}", kind.users));
        let (profile, users) = (profile.to_lowercase(), users.to_lowercase());
        let tier = kind.tier;
        let line = format!(
            "{} ready: tier {tier}, profile {profile}, users {users}, {egress}{sudo}{home}\n",
            kind.ready
        );
        output.data(&line)?;
    }
    Ok(0)
}
