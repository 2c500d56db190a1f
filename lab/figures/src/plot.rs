//! A figure's plots as SVG.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;

use crate::figure::{Figure, Kind, Panel, Point, number};

const SIZE: (u32, u32) = (560, 320);
/// Told apart by people who see few colours, too.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// The places on the horizontal axis, evenly spread whatever their values.
struct XAxis<'f>(&'f [String]);

impl Ranged for XAxis<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let range = self.range();
        let share = (value - range.start) / (range.end - range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        (0..self.0.len()).map(|x| x as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.5..self.0.len().max(1) as f64 - 0.5
    }
}

impl ValueFormatter<f64> for XAxis<'_> {
    fn format_ext(&self, value: &f64) -> String {
        self.0.get(value.round() as usize).cloned().unwrap_or_default()
    }
}

/// One plot of a figure as an SVG element.
pub(crate) fn svg(figure: &Figure, panel: &Panel) -> String {
    let mut text = String::new();
    // Writing to a string does not fail; a plot that does is left out, and the data stand beside it.
    draw(figure, panel, &mut text).map_or_else(|_| String::new(), |()| text)
}

fn draw(figure: &Figure, panel: &Panel, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    // An axis without an end would have infinitely many labels, so what has no finite value is left out.
    let drawable = |point: &Option<Point>| point.filter(Point::is_finite);
    let points = || panel.series.iter().flat_map(|series| series.points.iter().filter_map(drawable));
    let top = points().map(|point| point.most).fold(0.0, f64::max);
    let bottom = points().map(|point| point.least).fold(0.0, f64::min);
    // Room for the legend above.
    let room = (top - bottom).max(1e-9) * 0.25;
    let bottom = if bottom < 0.0 { bottom - room / 2.0 } else { 0.0 };
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(XAxis(&figure.x_values), bottom..top + room)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(figure.x_name.as_str())
        .y_desc(panel.y_name.as_str())
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    let count = panel.series.len();
    for (position, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[position % COLOURS.len()];
        let width = 0.8 / count as f64;
        let shift = if figure.kind == Kind::Bars { width * (position as f64 + 0.5) - 0.4 } else { 0.0 };
        let found: Vec<_> =
            series.points.iter().enumerate().filter_map(|(at, point)| Some((at as f64, drawable(point)?))).collect();
        let drawn = match figure.kind {
            Kind::Lines => {
                let line = found.iter().map(|(at, point)| (*at, point.y));
                chart.draw_series(found.iter().map(|(at, point)| Circle::new((*at, point.y), 3, colour.filled())))?;
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            }
            Kind::Bars => chart.draw_series(found.iter().map(|(at, point)| {
                let (left, right) = (at + shift - width * 0.45, at + shift + width * 0.45);
                Rectangle::new([(left, 0.0), (right, point.y)], colour.filled())
            }))?,
        };
        drawn
            .label(series.name.as_str())
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
        let spread = |(at, point): &(f64, Point)| {
            PathElement::new(vec![(at + shift, point.least), (at + shift, point.most)], BLACK.mix(0.7))
        };
        chart.draw_series(found.iter().map(spread))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_measured_nothing_is_drawn_or_left_out() {
        let [some, none] = [2.0, 0.0].map(|y| Point::of(vec![y]));
        for point in [some, none, some.over(none), none.over(none)] {
            let mut figure = Figure::new("1", "", "", Kind::Bars, "");
            figure.frame(&["1".to_owned()], &["y"], &["a"]);
            figure.panels[0].series[0].points[0] = Some(point);
            assert!(svg(&figure, &figure.panels[0]).ends_with("</svg>\n"), "{point:?}");
        }
    }
}
