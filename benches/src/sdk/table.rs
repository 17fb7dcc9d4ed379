//! The tables, as Markdown on standard output.

use crate::contest::{Bar, Figures, Measured, Whose};

/// Two figures closer than this cannot be distinguished here.
const GRAIN: f64 = 1.05;
const GRAIN_NS: f64 = 1.0;

pub fn print(tables: &[Measured]) {
    println!("### One call in one process\n");
    println!("| pattern | ours, ns | best peer | its ns | x | |\n| --- | ---: | --- | ---: | ---: | --- |");
    for table in tables {
        for ours in table.rows.iter().filter(|row| row.whose == Whose::Ours) {
            print_verdict(table, ours);
        }
    }
    for table in tables {
        println!("\n#### {}\n", table.name);
        println!("| | fastest, ns | median, ns | allocations | instructions |");
        println!("| --- | ---: | ---: | ---: | ---: |");
        for row in &table.rows {
            let instructions = row.instructions.map_or("-".to_owned(), |count| format!("{count:.0}"));
            let name = if row.whose == Whose::Ours { format!("**{}**", row.name) } else { row.name.to_owned() };
            println!(
                "| {name} | {:.1} | {:.1} | {:.2} | {instructions} |",
                row.fastest_ns, row.median_ns, row.allocations
            );
        }
    }
}

fn print_verdict(table: &Measured, ours: &Figures) {
    let name = format!("{}: {}", table.name, ours.name);
    match table.bar {
        Bar::AtMostNs(bar) => {
            let verdict = if ours.fastest_ns <= bar { "pass" } else { "**miss**" };
            println!(
                "| {name} | {:.1} | at most {bar:.0} ns | | {:.2} | {verdict} |",
                ours.fastest_ns,
                ours.fastest_ns / bar
            );
        }
        Bar::NoSlowerThanBestPeer => {
            let peers = table.rows.iter().filter(|row| row.whose == Whose::Peer);
            let Some(best) = peers.min_by(|a, b| a.fastest_ns.total_cmp(&b.fastest_ns)) else { return };
            let is_met = ours.fastest_ns <= (best.fastest_ns * GRAIN).max(best.fastest_ns + GRAIN_NS);
            println!(
                "| {name} | {:.1} | {} | {:.1} | {:.2} | {} |",
                ours.fastest_ns,
                best.name,
                best.fastest_ns,
                ours.fastest_ns / best.fastest_ns,
                if is_met { "pass" } else { "**miss**" }
            );
        }
    }
}
