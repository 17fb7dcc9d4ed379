//! Plots as SVG, from whole numbers only: they are the same on every machine.

use std::path::Path;

pub struct Series {
    pub name: &'static str,
    pub color: &'static str,
    /// One value per second.
    pub values: Vec<u64>,
}

/// Compares the plot with the file that is checked in, or writes it.
pub fn publish(file: &str, title: &str, unit: &str, series: &[Series]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulations").join(file);
    let drawn = draw(title, unit, series);
    if std::env::var("RESIL_POLICY").as_deref() == Ok("write") {
        std::fs::write(&path, drawn).expect("docs/simulations can be written");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == drawn, "docs/simulations/{file} is not what the simulation draws: run it with RESIL_POLICY=write");
}

fn draw(title: &str, unit: &str, series: &[Series]) -> String {
    let (width, height, left, top) = (720, 260, 60, 40);
    let seconds = series.iter().map(|line| line.values.len()).max().unwrap_or(1).max(2) as u64;
    let most = series.iter().flat_map(|line| line.values.iter().copied()).max().unwrap_or(1).max(1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 380\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"800\" height=\"380\" fill=\"white\"/>\n<text x=\"{left}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    for step in 0..=4u64 {
        let y = top + height - height * step / 4;
        svg.push_str(&format!(
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ddd\"/>\n<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
            left + width, left - 6, y + 4, most * step / 4
        ));
    }
    for (index, line) in series.iter().enumerate() {
        let point = |(second, value): (usize, &u64)| {
            format!("{},{}", left + width * second as u64 / (seconds - 1), top + height - height * value / most)
        };
        let points: Vec<String> = line.values.iter().enumerate().map(point).collect();
        let x = left + 240 * index as u64;
        svg.push_str(&format!(
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n\
             <rect x=\"{x}\" y=\"340\" width=\"14\" height=\"4\" fill=\"{}\"/>\n<text x=\"{}\" y=\"346\">{}</text>\n",
            line.color,
            points.join(" "),
            line.color,
            x + 20,
            line.name
        ));
    }
    svg.push_str(&format!(
        "<text x=\"{left}\" y=\"320\">0 s</text>\n<text x=\"{}\" y=\"320\" text-anchor=\"end\">{} s</text>\n\
         <text x=\"{}\" y=\"320\" text-anchor=\"middle\">{unit}</text>\n</svg>\n",
        left + width,
        seconds - 1,
        left + width / 2
    ));
    svg
}
