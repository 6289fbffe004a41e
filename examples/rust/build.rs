//! Makes `sys.rs` of minerva.h with the command bindgen (Debian: package bindgen), and finds the library by pkg-config.
use std::process::Command;
use std::{env, fs, path::Path};

fn output(command: &mut Command) -> String {
    let name = format!("{command:?}");
    let out = command.output().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn main() {
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    let header = Path::new(&folder).join("wrapper.h");
    fs::write(&header, "#include <minerva/minerva.h>\n").expect("the header can be written");
    let cflags = output(Command::new("pkg-config").args(["--cflags", "minerva"]));
    for flag in output(Command::new("pkg-config").args(["--libs", "minerva"])).split_whitespace() {
        match flag.split_at(2) {
            ("-L", at) => println!("cargo:rustc-link-search=native={at}"),
            ("-l", name) => println!("cargo:rustc-link-lib={name}"),
            _ => {}
        }
    }
    let mut bindgen = Command::new("bindgen");
    bindgen.arg(&header).args(["--no-layout-tests", "--allowlist-function", "mn_.*", "--allowlist-type", "mn_.*", "--allowlist-var", "MN_.*"]);
    bindgen.arg("-o").arg(Path::new(&folder).join("sys.rs")).arg("--").args(cflags.split_whitespace());
    output(&mut bindgen);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
}
