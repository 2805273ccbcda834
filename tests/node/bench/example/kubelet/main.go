// Command kubelet calls a DRA driver as a kubelet does, many claims at a time, and says how long each call took.
//
// It reads one line for each measurement from standard input, "prepare", "unprepare" or "empty" and then the claims as
// namespace/name/uid, and answers with one line: what the calls took in microseconds. The kubelet is written in Go, so
// that what a caller costs on the driver's machine is as it will be.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
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
	driver := dra.NewDRAPluginClient(connection)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		fmt.Println(strings.Join(measure(driver, words[0], words[1:]), " "))
	}
}

// measure calls the method for every claim, so many at a time, and returns what each call took in microseconds.
func measure(driver dra.DRAPluginClient, method string, claims []string) []string {
	var (
		workers sync.WaitGroup
		waiting = make(chan int)
		took    = make([]string, len(claims))
	)
	for range parallel {
		workers.Go(func() {
			for number := range waiting {
				started := time.Now()
				if err := call(driver, method, claims[number]); err != nil {
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

func call(driver dra.DRAPluginClient, method, title string) error {
	background, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	parts := strings.Split(title, "/")
	claims := []*dra.Claim{{Namespace: parts[0], Name: parts[1], Uid: parts[2]}}
	switch method {
	case "prepare":
		answer, err := driver.NodePrepareResources(background, &dra.NodePrepareResourcesRequest{Claims: claims})
		found, ok := answer.GetClaims()[parts[2]]
		return refused(err, ok, found.GetError())
	case "unprepare":
		answer, err := driver.NodeUnprepareResources(background, &dra.NodeUnprepareResourcesRequest{Claims: claims})
		found, ok := answer.GetClaims()[parts[2]]
		return refused(err, ok, found.GetError())
	default:
		_, err := driver.NodePrepareResources(background, &dra.NodePrepareResourcesRequest{})
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
