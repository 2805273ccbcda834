// Command kubelet calls a DRA driver as a kubelet does, many claims at a time, and says how long each call took.
//
// It reads one line for each measurement from standard input, "prepare", "unprepare", "empty" or "read" and then the
// claims as namespace/name/uid, and answers with one line: what the calls took in microseconds. The kubelet is written
// in Go, so that what a caller costs on the driver's machine is as it will be. "read" asks no driver: it reads the
// claims from the API server with a driver's token, which a driver has to do once for each.
//
// Its arguments are the driver's socket and, for "read", the directory of the driver's service account and the API
// server as host:port.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
)

const (
	parallel = 8
	// As long as the kubelet waits for a call.
	limit = 45 * time.Second
	// Of a line with many claims.
	longest = 1 << 20
)

func main() {
	connection, err := grpc.NewClient("unix:"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	node := node{driver: dra.NewDRAPluginClient(connection)}
	if len(os.Args) > 2 {
		node.server = account(os.Args[2], os.Args[3])
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		fmt.Println(strings.Join(measure(node, words[0], words[1:]), " "))
	}
}

// node is what a kubelet's node has: a driver, and the API server as the driver reaches it.
type node struct {
	driver dra.DRAPluginClient
	server server
}

// server is an API server and a driver's token for it.
type server struct {
	client  *http.Client
	address string
	token   string
}

// account returns the API server as a service account reaches it whose files are in a directory, as in a pod.
func account(directory, address string) server {
	authority, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		log.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(directory, "token"))
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	// Go's client asks for HTTP/2, as those of Kubernetes do, only where TLS is not set up by hand.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	return server{&http.Client{Transport: transport, Timeout: limit}, address, strings.TrimSpace(string(token))}
}

// read reads a claim and passes its content over.
func (s server) read(namespace, name string) error {
	const path = "https://%s/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s"
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf(path, s.address, namespace, name), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// measure calls the method for every claim, so many at a time, and returns what each call took in microseconds.
func measure(node node, method string, claims []string) []string {
	var (
		workers sync.WaitGroup
		waiting = make(chan int)
		took    = make([]string, len(claims))
	)
	for range parallel {
		workers.Go(func() {
			for number := range waiting {
				started := time.Now()
				if err := call(node, method, claims[number]); err != nil {
					log.Fatalf("%s %s: %v", method, claims[number], err)
				}
				took[number] = strconv.FormatInt(time.Since(started).Microseconds(), 10)
			}
		})
	}
	for number := range claims {
		waiting <- number
	}
	close(waiting)
	workers.Wait()
	return took
}

func call(node node, method, title string) error {
	background, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	parts := strings.Split(title, "/")
	claims := []*dra.Claim{{Namespace: parts[0], Name: parts[1], Uid: parts[2]}}
	switch method {
	case "prepare":
		answer, err := node.driver.NodePrepareResources(background, &dra.NodePrepareResourcesRequest{Claims: claims})
		found, ok := answer.GetClaims()[parts[2]]
		return refused(err, ok, found.GetError())
	case "unprepare":
		answer, err := node.driver.NodeUnprepareResources(background, &dra.NodeUnprepareResourcesRequest{Claims: claims})
		found, ok := answer.GetClaims()[parts[2]]
		return refused(err, ok, found.GetError())
	case "read":
		return node.server.read(parts[0], parts[1])
	default:
		_, err := node.driver.NodePrepareResources(background, &dra.NodePrepareResourcesRequest{})
		return err
	}
}

// refused returns why a call did not work for its claim, which must be among the answers.
func refused(err error, answered bool, text string) error {
	switch {
	case err != nil:
		return err
	case !answered:
		return errors.New("no answer for the claim")
	case text != "":
		return errors.New(text)
	default:
		return nil
	}
}
