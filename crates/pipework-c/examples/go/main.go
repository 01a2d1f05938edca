// A call, and a reply that comes word by word, from Go by way of cgo.
package main

/*
#cgo pkg-config: pipework
#include <pipework.h>

// Go's runtime signals its threads now and then. With this hook no signal ends a wait.
static bool go_on(void) { return true; }
static pwk_status wait_on(pwk_error *error) { return pwk_set_interrupt_hook(go_on, error); }
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

func check(status C.pwk_status, failed *C.pwk_error) {
	if status != C.PWK_OK {
		var text [256]C.char
		C.pwk_error_text(failed, &text[0], C.size_t(len(text)))
		fmt.Fprintln(os.Stderr, C.GoString(&text[0]))
		os.Exit(1)
	}
}

// Where the bytes of a text are, and how many; none are empty here.
func at(bytes []byte) (unsafe.Pointer, C.size_t) {
	return unsafe.Pointer(&bytes[0]), C.size_t(len(bytes))
}

func text(buffer *C.pwk_buffer) string {
	return C.GoStringN((*C.char)(unsafe.Pointer(buffer.data)), C.int(buffer.len))
}

// Answers "one two three" with its words, one after the other, and the last one with the reply.
func serve(server *C.pwk_server) {
	var failed C.pwk_error
	var data C.pwk_buffer
	defer C.pwk_buffer_free(&data)
	for {
		var request C.pwk_request
		status := C.pwk_server_recv(server, C.PWK_NEVER, &data, &request, &failed)
		if status == C.PWK_CLOSED {
			return // It was stopped.
		}
		check(status, &failed)
		words := strings.Fields(text(&data))
		for _, word := range words[:len(words)-1] {
			part, size := at([]byte(word + " "))
			check(C.pwk_server_part(server, request.ticket, part, size, 0, C.pwk_in_ms(5000), nil, &failed), &failed)
		}
		last, size := at([]byte(words[len(words)-1]))
		check(C.pwk_server_reply(server, request.ticket, last, size, &failed), &failed)
	}
}

func main() {
	var failed C.pwk_error
	var segment *C.pwk_segment
	var client *C.pwk_client
	var server *C.pwk_server
	check(C.wait_on(&failed), &failed)
	check(C.pwk_segment_anonymous(nil, &segment, &failed), &failed)
	check(C.pwk_server_new(segment, nil, &server, &failed), &failed)
	check(C.pwk_client_new(segment, nil, &client, &failed), &failed)
	served := make(chan struct{})
	go func() { serve(server); close(served) }()

	// A call.
	var reply C.pwk_buffer
	deadline := C.pwk_in_ms(5000)
	data, size := at([]byte("hello from Go"))
	check(C.pwk_client_call(client, data, size, deadline, &reply, &failed), &failed)
	fmt.Println(text(&reply))

	// The same, part by part.
	var stream *C.pwk_stream
	check(C.pwk_client_stream(client, data, size, 0, deadline, &stream, &failed), &failed)
	for {
		status := C.pwk_stream_next_part(stream, C.pwk_in_ms(5000), &reply, nil, &failed)
		if status == C.PWK_CLOSED {
			break // That was the last.
		}
		check(status, &failed)
		fmt.Println("part:", text(&reply))
	}
	C.pwk_stream_free(stream)

	C.pwk_buffer_free(&reply)
	C.pwk_server_stop(server)
	<-served
	C.pwk_server_free(server)
	C.pwk_client_free(client)
	C.pwk_segment_free(segment)
}
