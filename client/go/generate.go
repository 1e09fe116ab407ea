package tensorplane

import (
	"context"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// GenerateOptions: the prompt is Text, or TokenIDs (taken as given) where they are not nil. MaxNewTokens 0: as many as
// fit, at most 256. Temperature 0 is greedy; TopK and TopP 0 are all tokens; equal seeds give equal tokens. IgnoreEOS goes
// on after an end token.
type GenerateOptions struct {
	Text              string
	TokenIDs          []int64
	MaxNewTokens      int
	Temperature, TopP float64
	TopK              int
	Seed              uint64
	IgnoreEOS         bool
}

// GenerateChunk is some tokens: new ones since the last chunk. FinishReason of the last one: "stop" or "length".
type GenerateChunk struct {
	TokenIDs           []int64
	Text, FinishReason string
}

// Generate calls onChunk with tokens as they come. An error of onChunk stops the generation on all ranks and is returned;
// Stop stops it without one.
func (c *Client) Generate(ctx context.Context, model string, options GenerateOptions, onChunk func(GenerateChunk) error) error {
	request := &v1.GenerateRequest{RequestId: newRequestID(), Model: model, MaxNewTokens: int32(options.MaxNewTokens),
		IgnoreEos: options.IgnoreEOS, Prompt: &v1.GenerateRequest_Text{Text: options.Text},
		Sampling: &v1.Sampling{Temperature: options.Temperature, TopK: int32(options.TopK), TopP: options.TopP, Seed: options.Seed}}
	if options.TokenIDs != nil {
		request.Prompt = &v1.GenerateRequest_TokenIds{TokenIds: &v1.TokenIds{Ids: options.TokenIDs}}
	}
	return follow(ctx, c, func(ctx context.Context) (func() (GenerateChunk, error), error) {
		stream, err := c.stub.Generate(ctx, request)
		return func() (GenerateChunk, error) {
			response, err := stream.Recv()
			return GenerateChunk{response.GetTokenIds(), response.GetText(), response.GetFinishReason()}, err
		}, err
	}, onChunk)
}

// Worker and what it holds.
type Worker struct {
	ID, Host, Device, Reason, Version string
	Healthy                           bool
	MemoryLimitBytes, UsedBytes       uint64
	PID                               int64
	Models, Meshes                    map[string]int // its rank in each
}

// Status is the coordinator's state in numbers.
type Status struct {
	Version                                                                 string
	Term, UptimeMs                                                          uint64
	WorkersHealthy, Workers, ModelsReady, Models, Requests, Meshes, Tensors int
}

// Workers are all workers, by id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	response, err := unary(ctx, c, c.stub.ListWorkers, &v1.ListWorkersRequest{})
	zip := func(names []string, ranks []int32) map[string]int {
		named := map[string]int{}
		for i, name := range names {
			if i < len(ranks) {
				named[name] = int(ranks[i])
			}
		}
		return named
	}
	workers := []Worker{}
	for _, w := range response.GetWorkers() {
		workers = append(workers, Worker{ID: w.GetId(), Host: w.GetHost(), Device: w.GetDevice(), Reason: w.GetReason(),
			Version: w.GetVersion(), Healthy: w.GetHealthy(), MemoryLimitBytes: w.GetMemoryLimitBytes(), UsedBytes: w.GetUsedBytes(),
			PID: w.GetPid(), Models: zip(w.GetModels(), w.GetRanks()), Meshes: zip(w.GetMeshes(), w.GetMeshRanks())})
	}
	return workers, err
}

// Status is the coordinator's state in numbers.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s, err := unary(ctx, c, c.stub.GetStatus, &v1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	return &Status{Version: s.GetVersion(), Term: s.GetTerm(), UptimeMs: s.GetUptimeMs(), WorkersHealthy: int(s.GetWorkersHealthy()),
		Workers: int(s.GetWorkers()), ModelsReady: int(s.GetModelsReady()), Models: int(s.GetModels()), Requests: int(s.GetRequests()),
		Meshes: int(s.GetMeshes()), Tensors: int(s.GetTensors())}, nil
}
