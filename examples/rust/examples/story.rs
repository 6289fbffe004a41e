//! Tells a story, as it is generated: story [MODEL] [PROMPT]
//!
//!     cargo run --example story
use minerva::{Error, Model, Runtime, Session};
use std::io::Write;

fn story(path: Option<&str>, prompt: &str) -> Result<(), Error> {
    let runtime = Runtime::new()?;
    let model = Model::open(&runtime, path)?;
    let mut session = Session::new(&model)?;
    let mut out = std::io::stdout();
    session.generate(prompt, |text| out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok())?;
    println!();
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let prompt = words.get(1).map_or("Tell me a story.", String::as_str);
    if let Err(e) = story(words.first().map(String::as_str), prompt) {
        eprintln!("{e}");
        std::process::exit(unsafe { minerva::sys::mn_exit_code(e.status) });
    }
}
