#!/usr/bin/env python3
"""A program of examples/ is built as its README says, against the library of a build tree, and tells a story; a model that is not there is its error.
examples_test.py LANGUAGE BUILD FOLDER: what is built lies below FOLDER. Without the language's compiler the test is skipped."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NEEDS = {"c": ("cc", "pkg-config"), "cpp": ("c++", "pkg-config"), "python": (), "go": ("go", "cc", "pkg-config"), "rust": ("cargo", "rustc", "bindgen", "pkg-config")}


def run(*command, cwd=None, code=0, **more):
    p = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **more})
    assert p.returncode == code, (command, p.returncode, p.stdout[-2000:], p.stderr[-4000:])
    return p


def flags():
    return run("pkg-config", "--cflags", "--libs", "minerva").stdout.split()


def make_c(source, folder):
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "story.c", *flags(), "-o", folder + "/story", cwd=source)
    return [folder + "/story"]


def make_cpp(source, folder):
    run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "story.cpp", *flags(), "-o", folder + "/story", cwd=source)
    return [folder + "/story"]


def make_python(source, _):
    return [sys.executable, source + "/story.py"]


def make_go(source, folder):
    run("go", "vet", ".", cwd=source, GOCACHE=folder + "/cache", GOFLAGS="-mod=mod", GOPROXY="off", HOME=folder)
    run("go", "build", "-o", folder + "/story", cwd=source, GOCACHE=folder + "/cache", GOFLAGS="-mod=mod", GOPROXY="off", HOME=folder)
    return [folder + "/story"]


def make_rust(source, folder):
    copy = folder + "/source"  # cargo writes a lock file
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    run("cargo", "build", "-q", "--offline", "--example", "story", "--target-dir", folder + "/target", cwd=copy, RUSTFLAGS="-D warnings")
    return [folder + "/target/debug/examples/story"]


def main():
    language, build, folder = sys.argv[1:4]
    missing = [tool for tool in NEEDS[language] if not shutil.which(tool)]
    if missing:
        print("skipped: needs " + ", ".join(missing))
        sys.exit(77)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "minerva.pc"), "w", encoding="utf-8") as f:  # as an installation has it
        f.write("Name: minerva\nDescription: of a build tree\nVersion: 0\nCflags: -I%s/include\nLibs: -L%s/runtime -lminerva\n" % (ROOT, build))
    os.environ.update(PKG_CONFIG_PATH=folder, LD_LIBRARY_PATH=os.path.join(build, "runtime"))
    command = globals()["make_" + language](os.path.join(ROOT, "examples", language), folder)
    with tempfile.TemporaryDirectory() as elsewhere:
        story = run(*command, cwd=elsewhere).stdout
        assert len(story.split()) > 20 and story.endswith("\n"), story
        said = run(*command, "/nowhere/model.gguf", cwd=elsewhere, code=1)
        assert "IO_ERROR: /nowhere/model.gguf" in said.stderr and not said.stdout, said
    with open(os.path.join(ROOT, "examples", "README.md"), encoding="utf-8") as f:
        assert "| `%s` |" % language in f.read()
    print("ok    " + " ".join(story.split()[:12]))


if __name__ == "__main__":
    main()
