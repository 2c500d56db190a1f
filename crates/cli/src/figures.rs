//! `polychron figures`.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use polychron_figures::{Drawn, Ended, PAPERS, Paper, Settings, page};

use crate::arguments::Figures;
use crate::interrupt;

/// Runs the command.
pub(crate) fn run(given: &Figures) -> ExitCode {
    match draw(given) {
        Ok(Some(failure)) => {
            eprintln!("error: {failure}");
            ExitCode::from(1)
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

/// Measures and writes; answers what failed on the way, if anything did.
fn draw(given: &Figures) -> Result<Option<String>, String> {
    let names = || PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", ");
    let unknown = || format!("there are no figures of `{}`; the papers are {}", given.paper, names());
    let paper = Paper::named(&given.paper).ok_or_else(unknown)?;
    if let Some(id) = given.figure.iter().find(|id| !paper.ids().any(|known| known == **id)) {
        let known = paper.ids().collect::<Vec<_>>().join(", ");
        return Err(format!("--figure {id}: there is no such figure; there are {known}"));
    }
    let settings = settings(given)?;
    let output = given.output.clone().unwrap_or_else(|| PathBuf::from(format!("figures-{}.html", paper.name)));
    let json = given.json.clone().unwrap_or_else(|| output.with_extension("json"));
    if output == json {
        return Err(format!(
            "--output {} would also be the file of the data; name another with --json",
            output.display()
        ));
    }
    // Opened beforehand, so that nobody waits for a page that cannot be written.
    let (html_file, json_file) = (open("--output", &output)?, open("--json", &json)?);
    interrupt::listen();
    let drawn: Drawn = paper.draw(&given.figure, &settings, &interrupt::STOP, &|line| eprintln!("{line}"));
    let (html, data) = page(paper, &settings, &drawn);
    for (file, text, path) in [(html_file, &html, &output), (json_file, &data, &json)] {
        if let Err(error) = write(file, text) {
            return Ok(Some(format!("{} could not be written: {error}", path.display())));
        }
    }
    println!("{} figures in {}, their data in {}", drawn.figures.len(), output.display(), json.display());
    match drawn.ended {
        Some(Ended::Failed(line)) => Ok(Some(line)),
        Some(Ended::Stopped) => {
            println!("ended early");
            Ok(None)
        }
        None => Ok(None),
    }
}

fn settings(given: &Figures) -> Result<Settings, String> {
    let threads = given.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let most = polychron_engine::Common::default().memory.max_workers;
    if !(1..=most).contains(&threads) {
        return Err(format!("--threads is {threads}; it lies between 1 and {most}"));
    }
    let base = if given.quick { Settings::quick(threads) } else { Settings::full(threads) };
    let seconds = given.seconds.unwrap_or(base.seconds);
    if !(seconds.is_finite() && seconds > 0.0 && seconds <= 3600.0) {
        return Err(format!("--seconds is {seconds}; it lies above 0 and up to 3600"));
    }
    let repeat = given.repeat.unwrap_or(base.repeat);
    if !(1..=1000).contains(&repeat) {
        return Err(format!("--repeat is {repeat}; it lies between 1 and 1000"));
    }
    let records = given.records.unwrap_or(base.records);
    if !(16..=1 << 32).contains(&records) {
        return Err(format!("--records is {records}; it lies between 16 and {}", 1_u64 << 32));
    }
    Ok(Settings {
        seconds,
        repeat,
        records,
        seed: given.seed,
        scale: given.scale.unwrap_or(base.scale),
        commit: env!("POLYCHRON_COMMIT").to_owned(),
        ..base
    })
}

fn open(option: &str, path: &PathBuf) -> Result<File, String> {
    let opened = File::options().create(true).write(true).truncate(false).open(path);
    opened.map_err(|error| format!("{option} {}: {error}", path.display()))
}

fn write(mut file: File, text: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}
