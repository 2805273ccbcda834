package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
)

// Marks in the body of a review. Each is replaced by text of one length, so that every review is
// as long as the first; the same number gives the same text.
//
//	<UID>  a UUID
//	<ID>   sixteen hexadecimal digits
var marks = regexp.MustCompile(`<UID>|<ID>`)

const uidLength = 36

// review makes bodies that differ in their marks alone.
type review struct {
	parts  [][]byte
	filled []string
	length int
	uidAt  int
}

func newReview(text []byte) (*review, error) {
	text = bytes.TrimSpace(text)
	made := &review{uidAt: -1}
	last := 0
	for _, found := range marks.FindAllIndex(text, -1) {
		made.add(text[last:found[0]], string(text[found[0]:found[1]]))
		last = found[1]
	}
	made.add(text[last:], "")
	if made.uidAt < 0 {
		return nil, errors.New("found no <UID>, expected one as the request's uid")
	}
	return made, nil
}

func (r *review) add(part []byte, mark string) {
	r.parts = append(r.parts, part)
	r.filled = append(r.filled, mark)
	r.length += len(part)
	switch mark {
	case "<UID>":
		if r.uidAt < 0 {
			r.uidAt = r.length
		}
		r.length += uidLength
	case "<ID>":
		r.length += 16
	}
}

// fill appends the body with a number to what is there.
func (r *review) fill(to []byte, number uint64) []byte {
	for i, part := range r.parts {
		to = append(to, part...)
		switch r.filled[i] {
		case "<UID>":
			to = fmt.Appendf(to, "%08x-%04x-4000-8000-%012x", mixed(number)>>32, number>>48, number&(1<<48-1))
		case "<ID>":
			to = fmt.Appendf(to, "%016x", mixed(number))
		}
	}
	return to
}

// mixed turns a number into one whose digits look like those of a digest; no two become one.
func mixed(number uint64) uint64 {
	number = (number ^ number>>30) * 0xbf58476d1ce4e5b9
	number = (number ^ number>>27) * 0x94d049bb133111eb
	return number ^ number>>31
}

// isAdmitted tells whether the answer is the one to this request and admits the pod with a patch.
func (r *review) isAdmitted(request, answer []byte) bool {
	at := len(request) - r.length + r.uidAt
	return bytes.Contains(answer, request[at:at+uidLength]) &&
		bytes.Contains(answer, []byte(`"allowed":true`)) &&
		bytes.Contains(answer, []byte(`"patch":"`))
}
