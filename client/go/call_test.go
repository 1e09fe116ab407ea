package tensorplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// coordinator answers as a test tells it.
type coordinator struct {
	v1.UnimplementedCoordinatorServiceServer
	failures int      // of the next calls, UNAVAILABLE each
	ids      []string // request ids as they came
	tokens   int      // that a generation sends before it fails
	badChunk bool
	ended    chan struct{} // closed when the client has left a generation
}

func (c *coordinator) fails(id string) error {
	c.ids = append(c.ids, id)
	if c.failures > 0 {
		c.failures--
		return status.Errorf(codes.Unavailable, "try %d", len(c.ids))
	}
	return nil
}

func (c *coordinator) DeleteModel(_ context.Context, request *v1.DeleteModelRequest) (*v1.DeleteModelResponse, error) {
	if request.GetName() == "nobody" {
		return nil, status.Error(codes.NotFound, "model 'nobody'")
	}
	return &v1.DeleteModelResponse{}, c.fails(request.GetRequestId())
}

func (c *coordinator) PutTensor(stream v1.CoordinatorService_PutTensorServer) error {
	first, err := stream.Recv()
	if err == nil {
		err = c.fails(first.GetHeader().GetRequestId())
	}
	if err != nil {
		return err
	}
	return stream.SendAndClose(&v1.PutTensorResponse{Tensor: &v1.TensorDescription{Name: first.GetHeader().GetName()}})
}

func (c *coordinator) GetTensor(_ *v1.GetTensorRequest, stream v1.CoordinatorService_GetTensorServer) error {
	header := &v1.GetTensorHeader{Tensor: &v1.TensorDescription{Name: "w", Dtype: v1.DataType_U8, Shape: []int64{3}},
		Blocks: []*v1.TensorBlock{{Offset: []int64{0}, Shape: []int64{3}}}}
	if err := stream.Send(&v1.GetTensorResponse{Kind: &v1.GetTensorResponse_Header{Header: header}}); err != nil {
		return err
	}
	return sendChunks([][]byte{{1, 2, 3}}, nil, func(chunk *v1.Chunk) error {
		if c.badChunk {
			chunk.Crc32++
		}
		return stream.Send(&v1.GetTensorResponse{Kind: &v1.GetTensorResponse_Chunk{Chunk: chunk}})
	})
}

func (c *coordinator) Generate(request *v1.GenerateRequest, stream v1.CoordinatorService_GenerateServer) error {
	c.ids = append(c.ids, request.GetRequestId())
	for i := 0; i < c.tokens; i++ {
		if err := stream.Send(&v1.GenerateResponse{TokenIds: []int64{int64(i)}}); err != nil {
			return err
		}
	}
	if c.ended != nil {
		<-stream.Context().Done()
		close(c.ended)
	}
	return status.Error(codes.Unavailable, "worker-1 was lost")
}

// serve is the address of a server of the coordinator.
func serve(t *testing.T, c *coordinator, options ...grpc.ServerOption) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	v1.RegisterCoordinatorServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func connect(t *testing.T, address string, options Options) *Client {
	client, err := Connect(address, &options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

var fast = &Retry{Attempts: 3, FirstPause: time.Millisecond, LongestPause: 2 * time.Millisecond}

func TestUnavailableIsRepeatedWithOneRequestID(t *testing.T) {
	c := &coordinator{failures: 2}
	client := connect(t, serve(t, c), Options{Retry: fast})
	if err := client.Delete(context.Background(), "m"); err != nil {
		t.Fatal(err)
	}
	if len(c.ids) != 3 || c.ids[0] == "" || c.ids[0] != c.ids[1] || c.ids[1] != c.ids[2] {
		t.Errorf("ids %v", c.ids)
	}
	c.ids, c.failures = nil, 2
	if info, err := client.PutTensor(context.Background(), "w", NewTensor([]uint8{1}, 1), PutOptions{Mesh: "m"}); err != nil || info.Name != "w" {
		t.Fatal(info, err)
	}
	if len(c.ids) != 3 || c.ids[0] != c.ids[2] {
		t.Errorf("ids %v", c.ids)
	}
	c.ids, c.failures = nil, 9
	err := client.Delete(context.Background(), "m")
	var told *Error
	if !errors.As(err, &told) || told.Code != codes.Unavailable || told.Text != "try 3" || told.Unwrap().(*Error).Text != "try 1" {
		t.Errorf("%v, after %v", err, errors.Unwrap(err))
	}
}

func TestErrorsHaveCodeAndText(t *testing.T) {
	c := &coordinator{}
	client := connect(t, serve(t, c), Options{Retry: fast})
	err := client.Delete(context.Background(), "nobody")
	if Code(err) != codes.NotFound || err.Error() != "NOT_FOUND: model 'nobody'" || len(c.ids) != 0 {
		t.Error(err, c.ids)
	}
	if _, err := client.Status(context.Background()); Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	if got, ok := status.FromError(err); !ok || got.Code() != codes.NotFound {
		t.Error(got, ok)
	}
}

func TestNobodyAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	client := connect(t, address, Options{Retry: &Retry{Attempts: 1}})
	if _, err := client.Models(context.Background()); Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no coordinator answers at "+address) {
		t.Error(err)
	}
}

func TestATimeoutBoundsTheAttempts(t *testing.T) {
	c := &coordinator{failures: 1000}
	client := connect(t, serve(t, c), Options{Timeout: time.Hour, Retry: &Retry{Attempts: 1000, FirstPause: 2 * time.Hour, LongestPause: 2 * time.Hour}})
	if err := client.Delete(context.Background(), "m"); Code(err) != codes.Unavailable || len(c.ids) != 1 {
		t.Error(err, c.ids)
	}
}

func TestAStreamThatHasBegunIsNotRepeated(t *testing.T) {
	c := &coordinator{tokens: 2}
	client := connect(t, serve(t, c), Options{Retry: fast})
	var got []int64
	err := client.Generate(context.Background(), "lm", GenerateOptions{TokenIDs: []int64{7}}, func(chunk GenerateChunk) error {
		got = append(got, chunk.TokenIDs...)
		return nil
	})
	if Code(err) != codes.Unavailable || len(got) != 2 || len(c.ids) != 1 {
		t.Error(err, got, c.ids)
	}
	c.tokens, c.ids = 0, nil
	err = client.Generate(context.Background(), "lm", GenerateOptions{Text: "a"}, func(GenerateChunk) error { return nil })
	if Code(err) != codes.Unavailable || len(c.ids) != 3 || c.ids[0] != c.ids[2] {
		t.Error(err, c.ids)
	}
}

func TestACallbackEndsAGeneration(t *testing.T) {
	enough := errors.New("enough")
	for _, c := range []struct{ given, want error }{{Stop, nil}, {enough, enough}} {
		server := &coordinator{tokens: 1, ended: make(chan struct{})}
		client := connect(t, serve(t, server), Options{Retry: fast})
		err := client.Generate(context.Background(), "lm", GenerateOptions{}, func(GenerateChunk) error { return c.given })
		if err != c.want {
			t.Error(err)
		}
		<-server.ended
	}
}

func TestChecksumsOfAnswers(t *testing.T) {
	c := &coordinator{}
	client := connect(t, serve(t, c), Options{Retry: fast})
	if tensor, err := client.GetTensor(context.Background(), "w"); err != nil || string(tensor.Data) != "\x01\x02\x03" {
		t.Error(tensor, err)
	}
	c.badChunk = true
	if _, err := client.GetTensor(context.Background(), "w"); Code(err) != codes.DataLoss {
		t.Error(err)
	}
}

func TestConnect(t *testing.T) {
	t.Setenv("TPCTL_SERVER", "")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if _, err := Connect("", nil); Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	t.Setenv("TPCTL_SERVER", "127.0.0.1:7")
	client, err := Connect("", nil)
	if err != nil || client.Server() != "127.0.0.1:7" {
		t.Fatal(err)
	}
	_ = client.Close()
	for _, files := range []TLS{{CA: "/nowhere"}, {Cert: "a.pem"}, {Cert: "/nowhere", Key: "/nowhere"}} {
		files := files
		if _, err := Connect("127.0.0.1:7", &Options{TLS: &files}); err == nil {
			t.Error(files)
		}
	}
}

// identity writes a certificate and its key; signed by itself where the parent is nil.
func identity(t *testing.T, folder, name string, parent *tls.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	signer, signerKey := template, interface{}(key)
	if parent != nil {
		if signer, err = x509.ParseCertificate(parent.Certificate[0]); err != nil {
			t.Fatal(err)
		}
		signerKey = parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for ending, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(folder, name+ending), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLS(t *testing.T) {
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	authority := identity(t, folder, "ca", nil)
	own := identity(t, folder, "server", &authority)
	identity(t, folder, "client", &authority)
	other := identity(t, folder, "other", nil)
	identity(t, folder, "stranger", &other)
	trusted := x509.NewCertPool()
	text, err := os.ReadFile(file("ca.pem"))
	if err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}
	address := serve(t, &coordinator{}, grpc.Creds(credentials.NewTLS(config)))
	try := func(files *TLS) error {
		return connect(t, address, Options{Retry: &Retry{Attempts: 1}, TLS: files, Timeout: time.Minute}).Delete(context.Background(), "m")
	}
	if err := try(&TLS{CA: file("ca.pem"), Cert: file("client.pem"), Key: file("client.key")}); err != nil {
		t.Error(err)
	}
	for _, files := range []*TLS{{CA: file("ca.pem")}, {CA: file("other.pem"), Cert: file("client.pem"), Key: file("client.key")},
		{CA: file("ca.pem"), Cert: file("stranger.pem"), Key: file("stranger.key")}, nil} {
		if err := try(files); Code(err) != codes.Unavailable {
			t.Error(files, err)
		}
	}
	t.Setenv("TP_TLS_CA", file("ca.pem"))
	t.Setenv("TP_TLS_CERT", file("client.pem"))
	t.Setenv("TP_TLS_KEY", file("client.key"))
	if err := try(nil); err != nil {
		t.Error(err)
	}
}
