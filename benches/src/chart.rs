//! Charts as SVG: panels with a few lines each, whose names stand on the right.

use std::ops::Range;

pub use plotters::prelude::IntoLogRange;
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
};

use crate::number;

/// The part of a panel's width that the names take.
const LEGEND: u32 = 150;

/// One a line, in this order.
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(120, 120, 120),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(44, 160, 44),
];

/// A line's name and points.
pub type Line = (String, Vec<(f64, f64)>);

/// Where a panel is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws rows and columns of panels; `draw` draws each of them.
///
/// # Errors
/// When a panel cannot be drawn.
pub fn svg(
    size: (u32, u32),
    rows_and_columns: (usize, usize),
    mut draw: impl FnMut(usize, &Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (at, area) in root.split_evenly(rows_and_columns).iter().enumerate() {
        draw(at, area)?;
    }
    root.present()?;
    drop(root);
    Ok(svg)
}

/// Draws a panel. Each axis is a range, which may be in log scale.
///
/// # Errors
/// When it cannot be drawn.
pub fn panel<X, Y>(
    area: &Area<'_>,
    title: &str,
    (x_about, x): (&str, X),
    y: Y,
    lines: &[Line],
) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let (left, right) = area.split_horizontally(area.dim_in_pixel().0 - LEGEND);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(85)
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x_about).x_labels(8).label_style(("sans-serif", 14));
    mesh.x_label_formatter(&|x| number(*x)).y_label_formatter(&|y| number(*y)).draw()?;
    for (at, ((name, points), color)) in lines.iter().zip(COLORS.into_iter().cycle()).enumerate() {
        let y = 45 + 24 * at as i32;
        right.draw(&PathElement::new([(0, y), (24, y)], color.stroke_width(2)))?;
        right.draw(&Text::new(&**name, (32, y - 8), ("sans-serif", 15)))?;
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        chart.draw_series(line.point_size(if points.len() > 20 { 0 } else { 3 }))?;
    }
    Ok(())
}

/// From 0 to a bit above the highest point.
pub fn from_zero(lines: &[Line]) -> Range<f64> {
    0.0..values(lines, |point| point.1).fold(1e-3, f64::max) * 1.1
}

/// A coordinate of all points.
pub fn values(lines: &[Line], of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|(_, points)| points).map(of)
}

/// The powers of ten around some values, at least one decade.
pub fn decades(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    let low = least.min(most).log10().floor();
    let high = most.log10().ceil().max(low + 1.0);
    10f64.powf(low)..10f64.powf(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_has_its_lines() {
        let lines = |name: &str| [(name.to_owned(), vec![(1.0, 2.0), (3.0, 1e3)])];
        let svg = svg((600, 400), (1, 2), |at, area| {
            let (lines, name) = (lines(["one", "two"][at]), format!("panel {at}"));
            let x = decades(values(&lines, |point| point.0)).log_scale();
            panel(area, &name, ("things", x), from_zero(&lines), &lines)
        });
        let svg = svg.unwrap();
        for name in ["one", "two", "panel 0", "panel 1", "things"] {
            assert!(svg.contains(name), "{name}");
        }
    }

    #[test]
    fn an_axis_spans_whole_decades() {
        assert_eq!(decades([10.0, 1e6].into_iter()), 10.0..1e6);
        assert_eq!(decades([2.0, 30.0].into_iter()), 1.0..100.0);
        assert_eq!(decades([10.0].into_iter()), 10.0..100.0);
    }
}
