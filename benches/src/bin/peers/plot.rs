//! One SVG bar chart for each row: its measures one below the other, each scaled to its own longest
//! bar, the median written beside it.

use std::{fs, path::Path};

use anyhow::Context;
use plotters::prelude::*;

use crate::results::{FLOOR, Measure, OURS, Results, shown};

const WIDTH: i32 = 820;
const NAME: i32 = 140;
const BAR: i32 = 520;
const LINE: i32 = 22;

/// Writes `<row>.svg` for each of `rows` that was measured.
pub(crate) fn write(
    dir: &Path,
    rows: impl Iterator<Item = &'static str>,
    results: &Results,
) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let rows: Vec<_> = rows.collect();
    for row in &rows {
        let belongs = |measure: &&Measure| row_of(&rows, &measure.id) == Some(row);
        let measures: Vec<_> = results.measures.iter().filter(belongs).collect();
        if !measures.is_empty() {
            chart(&dir.join(format!("{row}.svg")), &measures)?;
        }
    }
    Ok(())
}

/// The row that a measure belongs to: its name is the longest that the measure's begins with. What
/// follows it begins with a dash, or `schedule-cancel-1t-0` would have the measures of `-100k`.
fn row_of<'a>(rows: &'a [&'static str], measure: &str) -> Option<&'a &'static str> {
    let begins = |row: &&&str| {
        let rest = measure.strip_prefix(**row);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    rows.iter().filter(begins).max_by_key(|row| row.len())
}

fn chart(path: &Path, measures: &[&Measure]) -> anyhow::Result<()> {
    let lines: usize = measures.iter().map(|measure| measure.entries.len() + 2).sum();
    let height = lines as i32 * LINE + LINE;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut y = LINE / 2;
    for measure in measures {
        let title = format!("{} [{}]", measure.id, measure.unit);
        area.draw(&Text::new(title, (8, y), ("sans-serif", 19)))?;
        y += LINE;
        let longest = measure.entries.iter().map(|entry| entry.median()).fold(0.0, f64::max);
        for entry in &measure.entries {
            let share = if longest > 0.0 { entry.median().max(0.0) / longest } else { 0.0 };
            let end = NAME + (share * f64::from(BAR)) as i32;
            let color = match entry.name {
                FLOOR => RGBColor(160, 160, 160),
                name if name.starts_with(OURS) => RGBColor(31, 119, 180),
                _ => RGBColor(255, 152, 64),
            };
            area.draw(&Text::new(entry.name, (8, y + 2), ("sans-serif", 17)))?;
            area.draw(&Rectangle::new([(NAME, y), (end.max(NAME + 1), y + 16)], color.filled()))?;
            let value = shown(entry.median());
            area.draw(&Text::new(value, (end + 6, y + 2), ("sans-serif", 17)))?;
            y += LINE;
        }
        y += LINE;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_belongs_to_one_row() {
        let rows = ["a-1t-0", "a-1t-100k", "half-foreign", "half-foreign-3keys"];
        assert_eq!(row_of(&rows, "a-1t-100k"), Some(&"a-1t-100k"));
        assert_eq!(row_of(&rows, "half-foreign-callback"), Some(&"half-foreign"));
        assert_eq!(row_of(&rows, "half-foreign-3keys-callback"), Some(&"half-foreign-3keys"));
        assert_eq!(row_of(&rows, "a-1t-1m"), None);
    }
}
