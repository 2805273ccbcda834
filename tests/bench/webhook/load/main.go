// Command load sends admission reviews over TLS and reports how fast they are answered.
//
// It speaks HTTP/1.1 by itself, so that one core of it can keep one core of any server busy.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const timeout = 30 * time.Second

type options struct {
	address     string
	path        string
	connections int
	total       int64
	duration    time.Duration
	first       uint64
}

// report is what the command prints; latencies are microseconds.
type report struct {
	Reviews  int     `json:"reviews"`
	Failures int     `json:"failures"`
	Failure  string  `json:"failure,omitempty"`
	Seconds  float64 `json:"seconds"`
	P50      uint32  `json:"p50"`
	P90      uint32  `json:"p90"`
	P99      uint32  `json:"p99"`
	P999     uint32  `json:"p999"`
	Max      uint32  `json:"max"`
}

func main() {
	var chosen options
	flag.StringVar(&chosen.address, "address", "", "host:port to connect to")
	flag.StringVar(&chosen.path, "path", "/mutate", "path to post to")
	flag.IntVar(&chosen.connections, "connections", 16, "connections, each with one review under way")
	flag.Int64Var(&chosen.total, "reviews", 0, "reviews to send; 0 for as many as fit")
	flag.DurationVar(&chosen.duration, "duration", 5*time.Second, "how long, unless reviews are counted")
	flag.Uint64Var(&chosen.first, "first", 1, "the first number that goes into a review")
	authority := flag.String("authority", "", "PEM file that the server's certificate is checked with")
	body := flag.String("body", "", "file with a review; see review.go for its marks")
	flag.Parse()

	found, err := run(&chosen, *authority, *body)
	if err != nil {
		fmt.Fprintf(os.Stderr, "load: %v\n", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}

func run(chosen *options, authority, body string) (*report, error) {
	config, err := trusting(authority)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(body)
	if err != nil {
		return nil, err
	}
	review, err := newReview(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", body, err)
	}
	senders, err := connect(chosen, config, review)
	if err != nil {
		return nil, err
	}
	return measure(chosen, senders), nil
}

func trusting(authority string) (*tls.Config, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: found no certificate, expected PEM", authority)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// sender has one connection and one review under way.
type sender struct {
	connection *tls.Conn
	reader     *bufio.Reader
	review     *review
	request    []byte
	answer     []byte
	latencies  []uint32
	failures   int
	failure    string
}

func connect(chosen *options, config *tls.Config, review *review) ([]*sender, error) {
	head := fmt.Sprintf(
		"POST %s?timeout=10s HTTP/1.1\r\nHost: %s\r\nUser-Agent: kube-apiserver-admission\r\n"+
			"Content-Length: %d\r\nAccept: application/json, */*\r\n"+
			"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
		chosen.path, chosen.address, review.length,
	)
	senders := make([]*sender, chosen.connections)
	for i := range senders {
		connection, err := tls.Dial("tcp", chosen.address, config)
		if err != nil {
			return nil, err
		}
		senders[i] = &sender{
			connection: connection,
			reader:     bufio.NewReaderSize(connection, 1<<16),
			review:     review,
			request:    []byte(head),
		}
	}
	return senders, nil
}

func measure(chosen *options, senders []*sender) *report {
	var next atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	goesOn := func(number int64) bool {
		if chosen.total > 0 {
			return number <= chosen.total
		}
		return time.Since(start) < chosen.duration
	}
	for _, one := range senders {
		group.Go(func() {
			head := len(one.request)
			for number := next.Add(1); goesOn(number); number = next.Add(1) {
				one.request = one.review.fill(one.request[:head], chosen.first+uint64(number))
				if one.send() != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return summary(senders, time.Since(start))
}

// send posts the request that is ready and judges the answer; an error ends the connection.
func (s *sender) send() error {
	begin := time.Now()
	if err := s.connection.SetDeadline(begin.Add(timeout)); err != nil {
		return s.fail(err)
	}
	if _, err := s.connection.Write(s.request); err != nil {
		return s.fail(err)
	}
	status, err := s.receive()
	if err != nil {
		return s.fail(err)
	}
	if status != 200 || !s.review.isAdmitted(s.request, s.answer) {
		_ = s.fail(fmt.Errorf("HTTP %d: %.200s", status, s.answer))
		return nil
	}
	s.latencies = append(s.latencies, uint32(time.Since(begin).Microseconds()))
	return nil
}

func (s *sender) fail(err error) error {
	s.failures++
	s.failure = err.Error()
	return err
}

// receive reads one answer that states its length.
func (s *sender) receive() (status int, err error) {
	line, err := s.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("found status line %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := -1
	for {
		if line, err = s.reader.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, _ := strings.Cut(string(line), ":")
		if strings.EqualFold(name, "content-length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("found no Content-Length in the answer")
	}
	s.answer = slices.Grow(s.answer[:0], length)[:length]
	_, err = io.ReadFull(s.reader, s.answer)
	return status, err
}

func summary(senders []*sender, took time.Duration) *report {
	var all []uint32
	found := &report{Seconds: took.Seconds()}
	for _, one := range senders {
		all = append(all, one.latencies...)
		found.Failures += one.failures
		if one.failure != "" {
			found.Failure = one.failure
		}
	}
	found.Reviews = len(all)
	if len(all) == 0 {
		return found
	}
	slices.Sort(all)
	at := func(share float64) uint32 { return all[int(share*float64(len(all)-1))] }
	found.P50, found.P90, found.P99, found.P999 = at(0.5), at(0.9), at(0.99), at(0.999)
	found.Max = all[len(all)-1]
	return found
}
