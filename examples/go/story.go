// story.go -- tells a story, as it is generated: story [MODEL] [PROMPT]
//
//	go build
package main

// #cgo pkg-config: minerva
// #include <stdlib.h>
// #include <minerva/minerva.h>
// int printText(void *arg, char *text, uint64_t n);
import "C"

import (
	"fmt"
	"os"
	"runtime/cgo"
	"unsafe"
)

//export printText
func printText(arg unsafe.Pointer, text *C.char, n C.uint64_t) C.int {
	out := (*(*cgo.Handle)(arg)).Value().(*os.File)
	if _, err := out.Write(C.GoBytes(unsafe.Pointer(text), C.int(n))); err != nil {
		return 1 // not 0 ends the answer
	}
	return 0
}

// word is an argument of the command line as C has it, or nil.
func word(i int) *C.char {
	if i < len(os.Args) {
		return C.CString(os.Args[i])
	}
	return nil
}

func main() {
	path, prompt := word(1), word(2) // nil: the demo model
	if prompt == nil {
		prompt = C.CString("Tell me a story.")
	}
	var rt *C.mn_runtime
	var model *C.mn_model
	var session *C.mn_session
	var err C.mn_error
	C.mn_error_init(&err)
	out := cgo.NewHandle(os.Stdout)
	st := C.mn_runtime_create(nil, &rt, &err)
	if st == C.MN_OK {
		st = C.mn_model_open(rt, path, &model, &err)
	}
	if st == C.MN_OK {
		st = C.mn_session_create(model, nil, &session, &err)
	}
	if st == C.MN_OK {
		st = C.mn_generate(session, prompt, nil, (*[0]byte)(C.printText), unsafe.Pointer(&out), &err)
	}
	if st != C.MN_OK {
		fmt.Fprintf(os.Stderr, "%s: %s\n", C.GoString(C.mn_status_name(st)), C.GoString(&err.msg[0]))
	} else {
		fmt.Println()
	}
	C.mn_session_free(session)
	C.mn_model_free(model)
	C.mn_runtime_free(rt)
	os.Exit(int(C.mn_exit_code(st)))
}
