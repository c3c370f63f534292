//! One SVG: for each kind of load how late it was at each rate, as it is and as advised.

use plotters::prelude::*;

use crate::{Curves, Step};

const COLORS: [RGBColor; 3] =
    [RGBColor(214, 39, 40), RGBColor(31, 119, 180), RGBColor(44, 160, 44)];
const LATE_MS: std::ops::Range<f64> = 0.5..5000.0;

pub(crate) fn chart(all: &[Curves]) -> anyhow::Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (960, 660)).into_drawing_area();
    root.fill(&WHITE)?;
    for (Curves { kind, ways }, area) in all.iter().zip(root.split_evenly((2, 2))) {
        let most = kind.rates[4] as f64;
        let (unit, of) = if most > 1e4 { (1e3, "1000 a second") } else { (1.0, "a second") };
        let mut chart = ChartBuilder::on(&area)
            .caption(kind.about, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..most / unit * 1.02, LATE_MS.log_scale())?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(format!("offered, {of}")).y_desc("late, p99 [ms]");
        mesh.x_label_formatter(&|rate| rate.to_string()).max_light_lines(0);
        mesh.y_label_formatter(&|ms| ms.to_string()).label_style(("sans-serif", 13)).draw()?;
        for ((steps, (way, _)), color) in ways.iter().zip(kind.ways).zip(COLORS) {
            let point =
                |&[offered, _, _, late, _]: &Step| (offered / unit, late.max(LATE_MS.start));
            let line = LineSeries::new(steps.iter().map(point), color.stroke_width(2));
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color);
            chart.draw_series(line.point_size(3))?.label(*way).legend(legend);
        }
        let mut legend = chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).draw()?;
    }
    root.present()?;
    drop(root);
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{KINDS, Kind};

    #[test]
    fn each_kind_has_a_panel_with_all_its_lines() {
        let steps = vec![[10.0, 9.0, 1.0, 2.0, 3.0]];
        let curves =
            |kind: &'static Kind| Curves { kind, ways: vec![steps.clone(); kind.ways.len()] };
        let svg = chart(&KINDS.iter().map(curves).collect::<Vec<_>>()).unwrap();
        for kind in &KINDS {
            assert!(kind.ways.iter().all(|(way, _)| svg.contains(way)) && svg.contains(kind.about));
        }
    }
}
