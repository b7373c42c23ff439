//! The labelled data, read once. None of it is part of this repository: it lies beside the checkout.

use cofferdam_compare::foreign;
use cofferdam_model::Run;
use serde_json::Value;
use std::path::Path;

pub struct Data {
    pub dojo: Vec<Dojo>,
    pub tau: Vec<Tau>,
    pub pairs: Vec<Pair>,
}

/// One AgentDojo run with its labels.
pub struct Dojo {
    pub suite: String,
    pub pipeline: String,
    pub task: String,
    /// None on benign runs.
    pub attack: Option<String>,
    pub utility: bool,
    /// On attacked runs: the attack succeeded. Always true on benign ones.
    pub security: bool,
    pub run: Run,
}

/// One τ-bench trajectory.
pub struct Tau {
    pub task: u64,
    pub trial: u64,
    pub passed: bool,
    pub run: Run,
}

/// One claim with the passages it is to be found in.
pub struct Pair {
    pub source: String,
    pub claim: String,
    pub evidence: Vec<String>,
    pub supported: bool,
}

impl Data {
    pub fn load(dir: &Path) -> Result<Self, String> {
        Ok(Self {
            dojo: lines(dir, "agentdojo-dev.jsonl.zst", dojo)?,
            tau: lines(dir, "tau-airline-dev.jsonl.zst", tau)?,
            pairs: lines(dir, "groundedness-dev.jsonl.zst", pair)?,
        })
    }
}

fn lines<T>(dir: &Path, name: &str, read: fn(Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    let path = dir.join(name);
    let failed = |error: &dyn std::fmt::Display| {
        format!("`{}`: {error}; see docs/accuracy.md for where the data comes from", path.display())
    };
    let packed = std::fs::read(&path).map_err(|e| failed(&e))?;
    let bytes = zstd::decode_all(packed.as_slice()).map_err(|e| failed(&e))?;
    let text = String::from_utf8_lossy(&bytes);
    let parse = |(number, line): (usize, &str)| {
        let value = serde_json::from_str(line).map_err(|e| failed(&e))?;
        read(value).map_err(|e| failed(&format!("line {}: {e}", number + 1)))
    };
    text.lines().enumerate().map(parse).collect()
}

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_owned)
}

fn dojo(value: Value) -> Result<Dojo, String> {
    let attack = text(&value, "attack_type").filter(|attack| attack != "none");
    Ok(Dojo {
        suite: text(&value, "suite_name").ok_or("`suite_name` is missing")?,
        pipeline: text(&value, "pipeline_name").ok_or("`pipeline_name` is missing")?,
        task: text(&value, "user_task_id").ok_or("`user_task_id` is missing")?,
        utility: value["utility"].as_bool().unwrap_or(false),
        security: value["security"].as_bool().unwrap_or(false),
        run: foreign::read_value(&value).map_err(|e| e.to_string())?,
        attack,
    })
}

fn tau(value: Value) -> Result<Tau, String> {
    Ok(Tau {
        task: value["task_id"].as_u64().ok_or("`task_id` is missing")?,
        trial: value["trial"].as_u64().unwrap_or(0),
        passed: value["reward"].as_f64().is_some_and(|reward| reward > 0.99),
        run: foreign::read_value(&value).map_err(|e| e.to_string())?,
    })
}

fn pair(value: Value) -> Result<Pair, String> {
    let passages = value["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(Pair {
        source: text(&value, "source").ok_or("`source` is missing")?,
        claim: text(&value, "claim").ok_or("`claim` is missing")?,
        evidence: passages.iter().filter_map(|p| p.as_str().map(str::to_owned)).collect(),
        supported: value["supported"].as_bool().ok_or("`supported` is missing")?,
    })
}
