package tensorplane

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// TLS names the files (PEM) of the client's side of TLS. CA: the authority whose servers are trusted; empty: the system's.
// Cert and Key: what is shown to a server that asks.
type TLS struct {
	CA, Cert, Key string
}

// Options of a Client; the zero value has its meaning.
type Options struct {
	// Timeout of each call, its retries included; 0: that of the context alone.
	Timeout time.Duration
	// Retry of what is UNAVAILABLE; nil: DefaultRetry.
	Retry *Retry
	// TLS; nil: what TP_TLS_CA, TP_TLS_CERT and TP_TLS_KEY say, plain text where none is set. &TLS{}: the system's
	// authorities.
	TLS *TLS
}

// Client is a coordinator's API. Safe for concurrent use.
type Client struct {
	server     string
	timeout    time.Duration
	retry      Retry
	connection *grpc.ClientConn
	stub       v1.CoordinatorServiceClient
}

const maxReceiveBytes = 256 << 20

// Connect makes a client of the coordinator at HOST:PORT; "": TPCTL_SERVER, or the cluster of `tpctl local up`. It does
// not connect yet; the first call does. Options may be nil.
func Connect(server string, options *Options) (*Client, error) {
	if options == nil {
		options = &Options{}
	}
	address, err := serverAddress(server)
	if err != nil {
		return nil, err
	}
	retry := DefaultRetry
	if options.Retry != nil {
		retry = *options.Retry
	}
	security, err := transport(options.TLS)
	if err != nil {
		return nil, err
	}
	connection, err := grpc.Dial(address, security, grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceiveBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, errorf(codes.InvalidArgument, "%s: %v", address, err)
	}
	return &Client{server: address, timeout: options.Timeout, retry: retry, connection: connection,
		stub: v1.NewCoordinatorServiceClient(connection)}, nil
}

// Close ends the calls that still run.
func (c *Client) Close() error { return c.connection.Close() }

// Server is the address.
func (c *Client) Server() string { return c.server }

// Stub is the generated one, for what this package does not have; without retries, and with gRPC's errors.
func (c *Client) Stub() v1.CoordinatorServiceClient { return c.stub }

func serverAddress(server string) (string, error) {
	if server == "" {
		server = os.Getenv("TPCTL_SERVER")
	}
	if server != "" {
		return server, nil
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home := os.Getenv("HOME")
		if home == "" {
			home = "/tmp"
		}
		state = filepath.Join(home, ".local/state")
	}
	text, err := os.ReadFile(filepath.Join(state, "tensorplane/endpoint"))
	if err != nil {
		return "", errorf(codes.InvalidArgument,
			"no server: give HOST:PORT, or set TPCTL_SERVER, or start one with `tpctl local up`")
	}
	return strings.TrimSpace(string(text)), nil
}

func transport(files *TLS) (grpc.DialOption, error) {
	if files == nil {
		files = &TLS{CA: os.Getenv("TP_TLS_CA"), Cert: os.Getenv("TP_TLS_CERT"), Key: os.Getenv("TP_TLS_KEY")}
		if *files == (TLS{}) {
			return grpc.WithInsecure(), nil
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		pem, err := os.ReadFile(files.CA)
		if err != nil {
			return nil, errorf(codes.NotFound, "TLS.CA: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errorf(codes.InvalidArgument, "TLS.CA: %s holds no certificate", files.CA)
		}
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, errorf(codes.InvalidArgument, "TLS.Cert and TLS.Key belong together; got '%s' and '%s'", files.Cert, files.Key)
	}
	if files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, errorf(codes.InvalidArgument, "TLS.Cert, TLS.Key: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config)), nil
}

func newRequestID() string {
	var bytes [16]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		panic(err) // the system has no randomness
	}
	return hex.EncodeToString(bytes[:])
}
