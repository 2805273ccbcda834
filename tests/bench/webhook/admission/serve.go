package admission

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

const idle = 120 * time.Second

// Options say where to listen and with which certificate.
type Options struct {
	certificate, key, address string
}

// Flags has the command line set the options.
func Flags() *Options {
	var chosen Options
	flag.StringVar(&chosen.certificate, "tls-cert", "", "PEM file with the serving certificate")
	flag.StringVar(&chosen.key, "tls-key", "", "PEM file with its key")
	flag.StringVar(&chosen.address, "address", "127.0.0.1:0", "where to listen")
	return &chosen
}

// Serve listens until it fails, after printing where.
func (o *Options) Serve(edit Edit) error {
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on https://%s\n", listener.Addr())
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	server := &http.Server{
		Handler:     Handler(edit, log),
		IdleTimeout: idle,
		// controller-runtime offers HTTP/1.1 alone by default.
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair},
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"http/1.1"},
		},
	}
	return server.ServeTLS(listener, "", "")
}
