// A call, and a reply that comes word by word, from Go by way of cgo.
package main

// #cgo pkg-config: pipework
// #include <pipework.h>
import "C"

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

// Go's runtime signals its threads now and then. No wait loses anything by that: the same call is
// made again, with the same deadline.
func again(call func() C.pw_status) C.pw_status {
	status := call()
	for status == C.PW_INTERRUPTED {
		status = call()
	}
	return status
}

func check(status C.pw_status, failed *C.pw_error) {
	if status != C.PW_OK {
		var text [256]C.char
		C.pw_error_text(failed, &text[0], C.size_t(len(text)))
		fmt.Fprintln(os.Stderr, C.GoString(&text[0]))
		os.Exit(1)
	}
}

// Where the bytes of a text are, and how many; none are empty here.
func at(bytes []byte) (unsafe.Pointer, C.size_t) {
	return unsafe.Pointer(&bytes[0]), C.size_t(len(bytes))
}

func text(buffer *C.pw_buffer) string {
	return C.GoStringN((*C.char)(unsafe.Pointer(buffer.data)), C.int(buffer.len))
}

// Answers "one two three" with its words, one after the other, and the last one with the reply.
func serve(server *C.pw_server) {
	var failed C.pw_error
	var data C.pw_buffer
	defer C.pw_buffer_free(&data)
	for {
		var request C.pw_request
		status := again(func() C.pw_status {
			return C.pw_server_recv(server, C.PW_NEVER, &data, &request, &failed)
		})
		if status == C.PW_CLOSED {
			return // It was stopped.
		}
		check(status, &failed)
		words := strings.Fields(text(&data))
		for _, word := range words[:len(words)-1] {
			part, size := at([]byte(word + " "))
			check(again(func() C.pw_status {
				return C.pw_server_part(server, request.ticket, part, size, 0, C.pw_in_ms(5000), nil, &failed)
			}), &failed)
		}
		last, size := at([]byte(words[len(words)-1]))
		check(C.pw_server_reply(server, request.ticket, last, size, 0, nil, &failed), &failed)
	}
}

func main() {
	var failed C.pw_error
	var segment *C.pw_segment
	var client *C.pw_client
	var server *C.pw_server
	check(C.pw_reqrep_anonymous(nil, &segment, &failed), &failed)
	check(C.pw_reqrep_server(segment, nil, &server, &failed), &failed)
	check(C.pw_reqrep_client(segment, nil, &client, &failed), &failed)
	served := make(chan struct{})
	go func() { serve(server); close(served) }()

	// A call. (pw_client_call would be cancelled by a signal.)
	var ticket C.uint64_t
	var reply C.pw_buffer
	deadline := C.pw_in_ms(5000)
	data, size := at([]byte("hello from Go"))
	check(again(func() C.pw_status {
		return C.pw_client_send(client, data, size, 0, deadline, &ticket, &failed)
	}), &failed)
	check(again(func() C.pw_status {
		return C.pw_client_recv(client, ticket, deadline, &reply, nil, &failed)
	}), &failed)
	fmt.Println(text(&reply))

	// The same, part by part.
	var stream *C.pw_stream
	check(again(func() C.pw_status {
		return C.pw_client_stream(client, data, size, 0, deadline, &stream, &failed)
	}), &failed)
	for {
		status := again(func() C.pw_status {
			return C.pw_stream_next_part(stream, C.pw_in_ms(5000), &reply, nil, &failed)
		})
		if status == C.PW_CLOSED {
			break // That was the last.
		}
		check(status, &failed)
		fmt.Println("part:", text(&reply))
	}
	C.pw_stream_free(stream)

	C.pw_buffer_free(&reply)
	C.pw_server_stop(server)
	<-served
	C.pw_server_free(server)
	C.pw_client_free(client)
	C.pw_segment_free(segment)
}
