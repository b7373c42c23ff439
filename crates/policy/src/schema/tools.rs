//! `[[tool]]`, read.

use super::fields::{hosts, methods, paths, words};
use crate::read::{Notes, Table};
use crate::settings::DeclaredTool;

pub(super) fn tools(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<DeclaredTool> {
    let tables = root.tables("tool", &["name", "host", "methods", "paths"], notes);
    tables.iter().filter_map(|table| tool(table, notes)).collect()
}

fn tool(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<DeclaredTool> {
    for (key, why) in [("name", "write what rules about it call it"), ("host", "write where it is called")] {
        if !table.has(key) {
            table.missing(key, why, notes);
        }
    }
    let name = words(table, "name", notes).map(|text| text.value);
    let hosts = hosts(table, "host", notes);
    let (methods, paths) = (methods(table, notes), paths(table, notes));
    Some(DeclaredTool { name: name?, hosts: hosts?, methods, paths, line: table.spot.line })
}
