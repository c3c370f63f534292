//! One SVG: for each kind of load how late it was at each rate, as it is and as advised.

use purgatory_benches::chart::{IntoLogRange, Line, panel, svg};

use crate::{Curves, Step, kinds::KINDS};

const LATE_MS: std::ops::Range<f64> = 0.5..5000.0;

pub(crate) fn chart(all: &[Curves]) -> anyhow::Result<String> {
    svg((1200, 660), (2, 2), |at, area| {
        let (kind, ways) = (&KINDS[at], &all[at]);
        let most = kind.rates[4] as f64;
        let (unit, about) = if most > 1e4 { (1e3, "1000 a second") } else { (1.0, "a second") };
        let point = |&[offered, _, _, late, _]: &Step| (offered / unit, late.max(LATE_MS.start));
        let line = |(steps, (way, _)): (&Vec<Step>, &(&str, _))| -> Line {
            ((*way).to_owned(), steps.iter().map(point).collect())
        };
        let lines: Vec<_> = ways.iter().zip(kind.ways).map(line).collect();
        let title = format!("{}; late, p99 [ms]", kind.about);
        let x = (&*format!("offered, {about}"), 0.0..most / unit * 1.02);
        panel(area, &title, x, LATE_MS.log_scale(), &lines)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_panel_with_all_its_lines() {
        let steps = vec![[10.0, 9.0, 1.0, 2.0, 3.0]];
        let svg = chart(&KINDS.map(|kind| vec![steps.clone(); kind.ways.len()])).unwrap();
        for kind in &KINDS {
            assert!(kind.ways.iter().all(|(way, _)| svg.contains(way)) && svg.contains(kind.about));
        }
    }
}
