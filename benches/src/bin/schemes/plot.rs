//! One SVG chart for each measure: cost by the number of pending timers, both in decades, a line a
//! scheme. O(1) lies flat, O(n) climbs a decade a decade.

use std::path::Path;

use plotters::prelude::*;
use purgatory_benches::{grouped, write as write_file};

use crate::{
    algorithms::{ALL, Contender},
    numbers::time,
    results::{Measure, Results},
};

const WIDTH: u32 = 860;
const HEIGHT: u32 = 520;
/// The part of the width that the legend takes.
const LEGEND: u32 = 170;

/// One a scheme, in the order of `algorithms::ALL`; ours last.
const COLORS: [RGBColor; 6] = [
    RGBColor(148, 103, 189),
    RGBColor(214, 39, 40),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(110, 110, 110),
    RGBColor(31, 119, 180),
];

/// Writes `start.svg`, `stop.svg`, `tick.svg` and `expire.svg`.
pub(crate) fn write(dir: &Path, results: &Results) -> anyhow::Result<()> {
    for measure in Measure::ALL {
        let file = dir.join(format!("{}.svg", measure.name()));
        write_file(&file, &chart(results, measure)?)?;
    }
    Ok(())
}

/// A scheme's name, color and medians.
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);

fn chart(results: &Results, measure: Measure) -> anyhow::Result<String> {
    let line = |(scheme, color): (&Contender, RGBColor)| {
        (scheme.name, color, results.series(scheme.name, measure))
    };
    let mut lines: Vec<Line> = ALL.iter().zip(COLORS).map(line).collect();
    lines.retain(|(_, _, points)| !points.is_empty());
    let points = || lines.iter().flat_map(|(_, _, points)| points);
    let (x, y) = (decades(points().map(|p| p.0)), decades(points().map(|p| p.1)));

    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(WIDTH - LEGEND);
    let mut chart = ChartBuilder::on(&left)
        .caption(format!("{}: {}", measure.name(), measure.about()), ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("pending timers")
        .x_label_formatter(&|pending| grouped(*pending as u64))
        .y_label_formatter(&|ns| time(*ns))
        .label_style(("sans-serif", 15))
        .draw()?;
    for (at, (name, color, points)) in lines.into_iter().enumerate() {
        let y = 50 + 24 * at as i32;
        right.draw(&PathElement::new([(0, y), (24, y)], color.stroke_width(2)))?;
        right.draw(&Circle::new((12, y), 3, color.filled()))?;
        right.draw(&Text::new(name, (32, y - 8), ("sans-serif", 16)))?;
        let dots = points.clone().into_iter().map(|point| Circle::new(point, 3, color.filled()));
        chart.draw_series(dots)?;
        chart.draw_series([PathElement::new(points, color.stroke_width(2))])?;
    }
    root.present()?;
    drop((chart, left, right, root));
    Ok(svg)
}

/// The powers of ten around some values; at least one decade.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    let low = least.min(most).log10().floor();
    let high = most.log10().ceil().max(low + 1.0);
    (10f64.powf(low), 10f64.powf(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure, sizes::Sizes};

    #[test]
    fn every_scheme_has_a_line_in_every_chart() {
        let results = measure(Sizes::TINY, |_| {}).unwrap();
        for measure in Measure::ALL {
            let svg = chart(&results, measure).unwrap();
            for Contender { name, .. } in ALL {
                assert!(svg.contains(name), "{name} in {}", measure.name());
            }
        }
    }

    #[test]
    fn an_axis_spans_whole_decades() {
        assert_eq!(decades([10.0, 1e6].into_iter()), (10.0, 1e6));
        assert_eq!(decades([2.0, 30.0].into_iter()), (1.0, 100.0));
        assert_eq!(decades([10.0].into_iter()), (10.0, 100.0));
    }
}
