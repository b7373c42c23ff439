//! `cofferdam image`: what sandboxes can have for their root.

use crate::args::{ImageCommand, ImageImport};
use crate::output::{Failure, Output};
use crate::story::printable;
use cofferdam_engine::{Engine, ImageAsked};
use cofferdam_model::{Bytes, ImageInfo};
use std::path::{Path, PathBuf};

pub(crate) fn run(home: Option<PathBuf>, command: ImageCommand, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match command {
        ImageCommand::Import(asked) => {
            let info = engine.import_image(&asked_for(*asked)?)?;
            told(&info, output)?;
        }
        ImageCommand::Show { image } => told(&engine.image(&image)?, output)?,
        ImageCommand::Rm { image } => engine.remove_image(&image)?,
        ImageCommand::Ls => {
            let images = engine.images();
            match output.json {
                true => output.value(&images)?,
                false => images.iter().try_for_each(|image| output.data(&line(image)))?,
            }
        }
    }
    Ok(0)
}

fn asked_for(asked: ImageImport) -> Result<ImageAsked, Failure> {
    let ImageImport { from, name, wanted, most, login_file } = asked;
    let login = login_file.as_deref().map(login).transpose()?;
    Ok(ImageAsked { from, name, wanted, most, login })
}

/// From a file: what stands on a command line is seen by everyone.
fn login(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("--login-file {}: {error}", path.display())))?;
    let login = text.lines().next().unwrap_or_default().trim();
    match login.contains(':') {
        true => Ok(login.to_owned()),
        false => Err(Failure::Usage(format!("--login-file {}: write USER:PASSWORD in it", path.display()))),
    }
}

fn short(image: &ImageInfo) -> String {
    image.digest.to_string().chars().take(12).collect()
}

fn line(image: &ImageInfo) -> String {
    let names: Vec<String> = image.names.iter().map(ToString::to_string).collect();
    let names = if names.is_empty() { "(no name)".to_owned() } else { names.join(", ") };
    let used = if image.in_use { "  in use" } else { "" };
    format!(
        "{names:<32} {}  {:>10}  {:>7} files{used}\n",
        short(image),
        Bytes(image.bytes).to_string(),
        image.files
    )
}

fn told(image: &ImageInfo, output: &Output) -> Result<(), Failure> {
    if output.json {
        return output.value(image);
    }
    let mut text = line(image);
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12} {}\n", printable(value)));
        }
    };
    let config = &image.config;
    add("digest", &format!("sha256:{}", image.digest));
    add("from", &image.source);
    add("for", &format!("linux/{}, {} layers", image.architecture, image.layers));
    add("runs", &config.entrypoint.iter().chain(&config.cmd).cloned().collect::<Vec<_>>().join(" "));
    add("in", config.workdir.as_deref().unwrap_or_default());
    add("as", config.user.as_deref().unwrap_or_default());
    for entry in &config.env {
        add("env", entry);
    }
    let notes = &image.notes;
    if !image.owners {
        add("owners", "all files are one user's: it was unpacked by a plain user");
    }
    let count = |count: u64, what: &str| if count > 0 { format!("{count} {what}") } else { String::new() };
    add("left out", &count(notes.devices, "devices"));
    add("left out", &count(notes.attributes, "attributes that grant or label"));
    add("left out", &count(notes.owners, "owners that no sandbox has: these files are nobody's"));
    if !notes.set_id.is_empty() {
        let some: Vec<&str> = notes.set_id.iter().take(3).map(String::as_str).collect();
        let more = notes.set_id.len().saturating_sub(some.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        add("left out", &format!("set-id bits of {}{more}", some.join(", ")));
    }
    output.data(&text)
}
