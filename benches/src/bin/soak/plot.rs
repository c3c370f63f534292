//! Memory, rate and lateness over time, as one SVG: three charts, one below the other.

use plotters::{
    coord::Shift,
    prelude::{DrawingArea, *},
};

use crate::{report::mib, series::Sample};

const WIDTH: u32 = 860;
const HEIGHT: u32 = 780;
/// The part of the width that the legend takes.
const LEGEND: u32 = 150;

const BLUE: RGBColor = RGBColor(31, 119, 180);
const GREY: RGBColor = RGBColor(150, 150, 150);
const RED: RGBColor = RGBColor(214, 39, 40);

/// A line's name, color and values; a sample may have none.
type Line = (&'static str, RGBColor, fn(&Sample) -> Option<f64>);

/// The chart, as SVG.
pub(crate) fn chart(samples: &[Sample]) -> anyhow::Result<String> {
    let memory: [Line; 3] = [
        ("resident", GREY, |sample| Some(mib(sample.rss_bytes))),
        ("live", BLUE, |sample| Some(mib(sample.live_bytes))),
        ("live, idle", RED, |sample| sample.idle_bytes.map(mib)),
    ];
    let rate: [Line; 2] = [
        ("parked", BLUE, |sample| Some(sample.rate() / 1000.0)),
        ("open", GREY, |sample| Some(sample.open as f64 / 1000.0)),
    ];
    let lateness: [Line; 2] = [
        ("most", GREY, |sample| Some(sample.lateness_max_ms)),
        ("median", BLUE, |sample| Some(sample.lateness_p50_ms)),
    ];
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((3, 1));
    panel(&panels[0], "memory [MiB]", &memory, samples)?;
    panel(&panels[1], "operations parked a second, and open [1000]", &rate, samples)?;
    panel(&panels[2], "expired late, by the timer's clock [ms]", &lateness, samples)?;
    root.present()?;
    drop((panels, root));
    Ok(svg)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    lines: &[Line],
    samples: &[Sample],
) -> anyhow::Result<()> {
    let (left, right) = area.split_horizontally(WIDTH - LEGEND);
    let values = lines.iter().flat_map(|(.., of)| samples.iter().filter_map(of));
    let most = values.fold(1e-3, f64::max);
    let end_s = samples.last().map_or(1.0, |sample| sample.at_s);
    let (unit, per_unit) = if end_s > 300.0 { ("minutes", 60.0) } else { ("seconds", 1.0) };
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end_s / per_unit, 0.0..most * 1.1)?;
    chart.configure_mesh().x_desc(unit).label_style(("sans-serif", 14)).draw()?;
    for (at, (name, color, of)) in lines.iter().enumerate() {
        let y = 45 + 24 * at as i32;
        right.draw(&PathElement::new([(0, y), (24, y)], color.stroke_width(2)))?;
        right.draw(&Text::new(*name, (32, y - 8), ("sans-serif", 15)))?;
        let point = |sample: &Sample| Some((sample.at_s / per_unit, of(sample)?));
        let points: Vec<_> = samples.iter().filter_map(point).collect();
        chart.draw_series([PathElement::new(points, color.stroke_width(1))])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_charts_are_drawn() {
        let sample = |at: u32| Sample {
            at_s: at.into(),
            seconds: 1.0,
            operations: 1000,
            idle_bytes: at.is_multiple_of(3).then_some(5 << 20),
            ..Sample::default()
        };
        let svg = chart(&(1..20).map(sample).collect::<Vec<_>>()).unwrap();
        for name in ["memory", "resident", "live, idle", "parked", "median", "seconds"] {
            assert!(svg.contains(name), "{name}");
        }
        assert!(chart(&[]).is_ok());
    }
}
