//! A beginning of bindings to libminerva: `sys` is minerva.h as bindgen has it; around it what a story needs. What else the header has is
//! wrapped in the same way: a struct that owns the pointer, a borrow of what it was made from, and `check`.
use std::ffi::{c_void, CStr, CString};
use std::marker::PhantomData;
use std::os::raw::{c_char, c_int};
use std::{fmt, ptr, slice};

#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/sys.rs"));
}

/// A status that is not MN_OK, with the library's message.
#[derive(Debug)]
pub struct Error {
    pub status: sys::mn_status,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = unsafe { CStr::from_ptr(sys::mn_status_name(self.status)) };
        write!(f, "{}: {}", name.to_string_lossy(), self.message)
    }
}

impl std::error::Error for Error {}

/// Calls a function with an mn_error, whose message becomes the Error.
fn check(call: impl FnOnce(*mut sys::mn_error) -> sys::mn_status) -> Result<(), Error> {
    let mut err: sys::mn_error = unsafe { std::mem::zeroed() };
    unsafe { sys::mn_error_init(&mut err) };
    match call(&mut err) {
        0 => Ok(()),
        status => Err(Error { status, message: unsafe { CStr::from_ptr(err.msg.as_ptr()) }.to_string_lossy().into_owned() }),
    }
}

/// Plugins and devices. Any thread.
pub struct Runtime(*mut sys::mn_runtime);
unsafe impl Send for Runtime {}
unsafe impl Sync for Runtime {}

impl Runtime {
    pub fn new() -> Result<Runtime, Error> {
        let mut p = ptr::null_mut();
        check(|e| unsafe { sys::mn_runtime_create(ptr::null(), &mut p, e) }).map(|()| Runtime(p))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        unsafe { sys::mn_runtime_free(self.0) }
    }
}

/// An open model. Any thread.
pub struct Model<'a>(*mut sys::mn_model, PhantomData<&'a Runtime>);
unsafe impl Send for Model<'_> {}
unsafe impl Sync for Model<'_> {}

impl<'a> Model<'a> {
    /// path: a file, a folder or a name; None is the demo model.
    pub fn open(runtime: &'a Runtime, path: Option<&str>) -> Result<Model<'a>, Error> {
        let path = path.map(|p| CString::new(p).expect("no NUL"));
        let (mut p, at) = (ptr::null_mut(), path.as_ref().map_or(ptr::null(), |p| p.as_ptr()));
        check(|e| unsafe { sys::mn_model_open(runtime.0, at, &mut p, e) }).map(|()| Model(p, PhantomData))
    }
}

impl Drop for Model<'_> {
    fn drop(&mut self) {
        unsafe { sys::mn_model_free(self.0) }
    }
}

/// Sequences on a device. One thread at a time.
pub struct Session<'a>(*mut sys::mn_session, PhantomData<&'a Model<'a>>);
unsafe impl Send for Session<'_> {}

impl<'a> Session<'a> {
    pub fn new(model: &'a Model) -> Result<Session<'a>, Error> {
        let mut p = ptr::null_mut();
        check(|e| unsafe { sys::mn_session_create(model.0, ptr::null(), &mut p, e) }).map(|()| Session(p, PhantomData))
    }

    /// Answers a prompt; print gets the pieces of the text, and ends the answer with false (MN_CANCELLED).
    pub fn generate<F: FnMut(&str) -> bool>(&mut self, prompt: &str, mut print: F) -> Result<(), Error> {
        unsafe extern "C" fn call<F: FnMut(&str) -> bool>(arg: *mut c_void, text: *const c_char, n: u64) -> c_int {
            let bytes = slice::from_raw_parts(text.cast(), n as usize);
            c_int::from(!(*arg.cast::<F>())(&String::from_utf8_lossy(bytes)))
        }
        let prompt = CString::new(prompt).expect("no NUL");
        let arg = (&mut print as *mut F).cast();
        check(|e| unsafe { sys::mn_generate(self.0, prompt.as_ptr(), ptr::null(), Some(call::<F>), arg, e) })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        unsafe { sys::mn_session_free(self.0) }
    }
}
