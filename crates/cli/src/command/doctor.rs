//! `cofferdam doctor`: what this host can enforce, tier by tier, and the fix for each no.

use crate::output::{Failure, Output, Paint};
use crate::story::wrap;
use cofferdam_engine::{Engine, Fact, TierFact, facts, tiers};
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let (tiers, facts) = (tiers(engine.home().path()), facts());
    let works = tiers.iter().any(|tier| tier.works);
    if output.json {
        let facts: Vec<_> = facts
            .iter()
            .map(|f| json!({ "name": f.name, "ok": f.ok, "detail": f.detail, "fix": f.fix }))
            .collect();
        output.value(&json!({ "works": works, "tiers": tiers, "facts": facts }))?;
    } else {
        output.data(&page(&tiers, &facts, output))?;
    }
    Ok(u8::from(!works))
}

fn page(tiers: &[TierFact], facts: &[Fact], output: &Output) -> String {
    let mut text = format!("{}\n", output.paint(Paint::Bold, "Tiers"));
    for tier in tiers {
        text.push_str(&line(tier.tier.name(), tier.works, &tier.detail, tier.fix.as_deref(), output));
    }
    text.push_str(&format!("\n{}\n", output.paint(Paint::Bold, "This host")));
    for fact in facts {
        text.push_str(&line(fact.name, fact.ok, &fact.detail, fact.fix.as_deref(), output));
    }
    text
}

fn line(name: &str, ok: bool, detail: &str, fix: Option<&str>, output: &Output) -> String {
    let word = if ok { output.paint(Paint::Good, "yes") } else { output.paint(Paint::Care, "no ") };
    let mut text = format!("  {word}  {name:<16} {}\n", wrap(detail, 24, 80));
    if let Some(fix) = fix {
        text.push_str(&format!("{:24}{}\n", "", wrap(&format!("fix: {fix}"), 24, 80)));
    }
    text
}
