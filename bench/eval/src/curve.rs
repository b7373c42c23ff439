//! What caution costs: how many swapped values are found, how many true ones are doubted, and in how many good runs of
//! another kind anything is flagged, as the margin by which another value has to fit better grows and shrinks.

use crate::claims::sums;
use crate::data::Data;
use crate::table::Table;
use cofferdam_compare::claims::check_with;

/// Times the margins that are in use; without end, only what is known without weighing values is flagged.
const CAUTIONS: [f32; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.5, f32::INFINITY];

pub fn run(data: &Data) -> Table {
    let mut table = Table::default();
    for caution in CAUTIONS {
        for (name, sums) in ["all tasks", "blind tasks"].iter().zip(sums(data, caution)) {
            let [(found, swaps), (doubted, truths)] = sums;
            table.share(format!("caution {caution}, {name}: swapped values flagged"), found, swaps, "≥ 0.95");
            table.share(format!("caution {caution}, {name}: true values flagged"), doubted, truths, "≤ 0.03");
        }
        let good = data.tau.iter().filter(|t| t.passed);
        let flagged =
            good.clone().filter(|t| check_with(&t.run, caution).claims.iter().any(|c| c.status.flagged()));
        let name = format!("caution {caution}, τ-bench airline: good runs with a claim flagged");
        table.share(name, flagged.count(), good.count(), "");
    }
    table.note("The seed and the swaps are those of `claims`. Caution multiplies the margins of the ranking, by which another value has to fit better, and that of exchanged pairs; 1 is in use.");
    table
}
