//! ATIF trajectories: steps by source, calls within a step, results in its observation.

use super::field::{ForeignError, content, list, rendered, text};
use super::scribe::{Answer, Scribe};
use cofferdam_model::{ActKind, Run, Spent};
use serde_json::Value;

pub(super) fn read(value: &Value) -> Result<Run, ForeignError> {
    let mut scribe = Scribe::named(value["session_id"].as_str().unwrap_or(""));
    for (at, step) in list(&value["steps"], "steps")?.iter().enumerate() {
        take(&mut scribe, at, step, &format!("steps[{at}]"))?;
        add(&mut scribe.run().spent, &step["metrics"]);
    }
    let mut run = scribe.finish();
    let total = &value["final_metrics"];
    let count = |key: &str| total[key].as_u64();
    run.spent.tokens_in = count("total_prompt_tokens").unwrap_or(run.spent.tokens_in);
    run.spent.tokens_out = count("total_completion_tokens").unwrap_or(run.spent.tokens_out);
    run.spent.tokens_cached = count("total_cached_tokens").unwrap_or(run.spent.tokens_cached);
    if let Some(dollars) = total["total_cost_usd"].as_f64() {
        run.spent.cost_micros = micros(dollars);
    }
    Ok(run)
}

fn micros(dollars: f64) -> u64 {
    (dollars.max(0.0) * 1e6) as u64
}

fn add(spent: &mut Spent, metrics: &Value) {
    let count = |key: &str| metrics[key].as_u64().unwrap_or(0);
    spent.tokens_in = spent.tokens_in.saturating_add(count("prompt_tokens"));
    spent.tokens_out = spent.tokens_out.saturating_add(count("completion_tokens"));
    spent.tokens_cached = spent.tokens_cached.saturating_add(count("cached_tokens"));
    let cost = micros(metrics["cost_usd"].as_f64().unwrap_or(0.0));
    spent.cost_micros = spent.cost_micros.saturating_add(cost);
}

fn take(scribe: &mut Scribe, at: usize, step: &Value, path: &str) -> Result<(), ForeignError> {
    let kind = match text(step, "source", path)? {
        "system" => ActKind::Instructed,
        "user" => ActKind::Told,
        _ => ActKind::Said,
    };
    let thought =
        scribe.words(at, ActKind::Said, step["reasoning_content"].as_str().unwrap_or("").to_owned());
    let said = scribe.words(at, kind, content(&step["message"], &format!("{path}.message"))?);
    let mut last = None;
    if !step["tool_calls"].is_null() {
        for (index, call) in list(&step["tool_calls"], &format!("{path}.tool_calls"))?.iter().enumerate() {
            let name = text(call, "function_name", &format!("{path}.tool_calls[{index}]"))?;
            let id = call["tool_call_id"].as_str().unwrap_or("");
            scribe.call(at, said.or(thought), id, name, call["arguments"].clone());
            last = Some(id);
        }
    }
    let results = &step["observation"]["results"];
    if results.is_null() {
        return Ok(());
    }
    for result in list(results, &format!("{path}.observation.results"))? {
        // A step with one call may leave out which call it was.
        let id = result["source_call_id"].as_str().or(last).unwrap_or("");
        if id.is_empty() || scribe.is_open(id) {
            scribe.answer(at, Answer { id, name: "", text: rendered(&result["content"]), failed: None });
        } else {
            scribe.words(at, ActKind::Told, rendered(&result["content"]));
        }
    }
    Ok(())
}
