//! A figure's plots as SVG.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;

use crate::figure::{Figure, Kind, Panel, Point, is_finite, number};

/// Small enough for labels to be read where a page of 360 pixels makes it smaller yet.
const SIZE: (u32, u32) = (440, 290);
/// Sizes of the labels at the axes, and of their names.
const LABEL: u32 = 14;
const NAME: u32 = 15;
/// Told apart by people who see few colours, too, on light and on dark ground.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(140, 140, 140),
    RGBColor(148, 87, 235),
];

/// The turn of hues between two colours beyond those, which keeps all of them apart (the golden angle).
const HUE_TURN: f64 = 0.381_966;

/// The colour of a series: each has its own.
pub(crate) fn colour(position: usize) -> RGBColor {
    COLOURS.get(position).copied().unwrap_or_else(|| {
        let beyond = (position - COLOURS.len()) as f64;
        let (red, green, blue) = HSLColor((0.13 + beyond * HUE_TURN).fract(), 0.6, 0.45).rgb();
        RGBColor(red, green, blue)
    })
}

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
    // The ground is the page's, light or dark.
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    // An axis without an end would have infinitely many labels, so what has no finite value is left out.
    let drawable = |point: &Option<Point>| point.filter(is_finite);
    let points = || panel.series.iter().flat_map(|series| series.points.iter().filter_map(drawable));
    let top = points().map(|point| point.most).fold(0.0, f64::max);
    let bottom = points().map(|point| point.least).fold(0.0, f64::min);
    let room = (top - bottom).max(1e-9) * 0.08;
    let bottom = if bottom < 0.0 { bottom - room } else { 0.0 };
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(68)
        .build_cartesian_2d(XAxis(&figure.x_values), bottom..top + room)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", LABEL))
        .axis_desc_style(("sans-serif", NAME))
        .x_desc(figure.x_name.as_str())
        .y_desc(panel.y_name.as_str())
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    let count = panel.series.len();
    for (position, series) in panel.series.iter().enumerate() {
        let colour = colour(position);
        let width = 0.8 / count as f64;
        // Bars stand side by side, and spreads of lines a little apart, so that none hides another.
        let apart = if figure.kind == Kind::Bars { width } else { width * 0.1 };
        let shift = apart * (position as f64 + 0.5 - count as f64 / 2.0);
        let found: Vec<_> =
            series.points.iter().enumerate().filter_map(|(at, point)| Some((at as f64, drawable(point)?))).collect();
        match figure.kind {
            Kind::Lines => {
                let line = found.iter().map(|(at, point)| (*at, point.median));
                chart.draw_series(
                    found.iter().map(|(at, point)| Circle::new((*at, point.median), 3, colour.filled())),
                )?;
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            }
            Kind::Bars => {
                chart.draw_series(found.iter().map(|(at, point)| {
                    let (left, right) = (at + shift - width * 0.45, at + shift + width * 0.45);
                    Rectangle::new([(left, 0.0), (right, point.median)], colour.mix(0.75).filled())
                }))?;
            }
        }
        let cap = 0.03;
        let spread = |(at, point): &(f64, Point)| {
            let (x, least, most) = (at + shift, point.least, point.most);
            [
                PathElement::new(vec![(x, least), (x, most)], colour),
                PathElement::new(vec![(x - cap, least), (x + cap, least)], colour),
                PathElement::new(vec![(x - cap, most), (x + cap, most)], colour),
            ]
        };
        chart.draw_series(found.iter().flat_map(spread))?;
    }
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_its_own_colour() {
        let colours: Vec<_> = (0..24).map(colour).collect();
        assert!((1..24).all(|at| !colours[..at].contains(&colours[at])), "{colours:?}");
    }

    #[test]
    fn spreads_have_the_colour_of_their_series_and_no_legend_hides_them() {
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        figure.frame(&["1".to_owned()], &["y"], &["a", "b"]);
        for series in &mut figure.panels[0].series {
            series.points[0] = Some(Point::of(vec![1.0, 2.0, 3.0]));
        }
        let text = svg(&figure, &figure.panels[0]);
        for colour in ["#0072B2", "#D55E00"] {
            // The spread and its two ends.
            let spread = format!("stroke=\"{colour}\" stroke-width=\"1\" points");
            assert_eq!(text.matches(&spread).count(), 3, "{text}");
        }
        assert!(!text.contains(">a</text>") && !text.contains(">\na\n"), "{text}");
    }

    #[test]
    fn what_measured_nothing_is_drawn_or_left_out() {
        let [some, none] = [2.0, 0.0].map(|y| Point::of(vec![y]));
        for point in [some, none, some.over(none), none.over(none)] {
            let mut figure = Figure::new("1", "", Kind::Bars, "");
            figure.frame(&["1".to_owned()], &["y"], &["a"]);
            figure.panels[0].series[0].points[0] = Some(point);
            assert!(svg(&figure, &figure.panels[0]).ends_with("</svg>\n"), "{point:?}");
        }
    }
}
